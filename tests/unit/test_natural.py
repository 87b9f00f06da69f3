"""Natural keys, stepped by hand: a row that vanishes between the insert and the look."""

from onefold import Inserted
from onefold.model.insert_once import natural
from onefold.operations.insert_once import insert_once
from onefold.operations.statement import Sql
from tests.fixtures.steps import Steps


def test_a_row_that_vanished_meanwhile_is_inserted_after_all() -> None:
    run = Steps(insert_once(Sql("postgres"), natural("note", {"key": 1}, "key")))

    run.answer("describe_table", [("key", "integer", True), ("text", "text", True)])
    run.answer("insert_once")
    run.answer("find_natural")
    statement = run.answer("insert_once", [(1, None)])

    assert statement.text == (
        'insert into "note" ("key") values (:v_aaa) on conflict ("key") do nothing'
        ' returning "key", "text"'
    )
    assert run.result == Inserted({"key": 1, "text": None})
