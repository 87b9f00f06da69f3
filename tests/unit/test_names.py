"""What may be called what."""

import pytest

from onefold.errors import InvalidInput
from onefold.model import checks


@pytest.mark.parametrize(
    ("queue", "parts"),
    [
        ("payments", ("", "payments")),
        ("{acme}payments", ("acme", "payments")),
        ("{a.b-c_1}" + "ß" * 200, ("a.b-c_1", "ß" * 200)),
        ("{" + "a" * 64 + "}x", ("a" * 64, "x")),
    ],
)
def test_a_queue_may_be_a_tenants(queue: str, parts: tuple[str, str]) -> None:
    assert checks.queue(queue, "queue") == queue
    assert checks.parted(queue) == parts


@pytest.mark.parametrize(
    "queue",
    ["{}x", "{Acme}x", "{-a}x", "{acme}", "{acme}{b}x", "{acme}a,b", "{" + "a" * 65 + "}x",
     "{acme}" + "x" * 201, "x{acme}", "{acme", 7],
)  # fmt: skip
def test_braces_in_a_queue_are_a_tenants_alone(queue: object) -> None:
    with pytest.raises(InvalidInput, match="queue must"):
        checks.queue(queue, "queue")


def test_a_schema_needs_no_quotes_and_is_not_one_that_postgresql_keeps_for_itself() -> None:
    for value in ("onefold", "_", "app_2", "x" * 63):
        assert checks.schema(value, "schema") == value
    for quoted in ("", "Onefold", "2app", "a-b", 'a"b', "x" * 64, "a\n", None, 1):
        with pytest.raises(InvalidInput, match="schema must be lower-case letters, digits and un"):
            checks.schema(quoted, "schema")
    for kept in ("pg_", "pg_catalog", "pg_onefold"):
        with pytest.raises(InvalidInput, match="schema must not begin with pg_"):
            checks.schema(kept, "schema")
