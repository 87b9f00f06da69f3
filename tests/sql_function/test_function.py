"""`onefold_enqueue` for its callers: types, errors, ids, wake-ups, and their transaction."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, LiteralString
from uuid import UUID

import asyncpg
import psycopg
import pytest
from psycopg import errors, sql
from psycopg.types.json import Json, Jsonb

from onefold import Enqueued, Onefold
from onefold.model.identity import enqueue_order
from onefold_contract.cases.bad_input import BAD, CONFLICTS

if TYPE_CHECKING:
    from collections.abc import Iterable

NO_NUL = ("\x00", "\ud800")
FIELDS = ("kind", "queue", "unique_key", "idempotency_key", "run_at", "expires_at", "delay",
          "unique_for", "idempotency_for", "priority", "max_attempts", "request_id", "unique_while",
          "on_duplicate", "on_mismatch", "max_wait")  # fmt: skip


def ask(connection: psycopg.Connection[Any], **arguments: Any) -> Any:
    """The one row of a call."""
    named = ", ".join(f"{name} => %({name})s" for name in arguments)
    cursor = connection.execute(f"select * from onefold_enqueue({named})".encode(), arguments)
    (row,) = cursor.fetchall()
    return row


# --- what it takes --------------------------------------------------------------------------------


def test_a_kind_is_enough(connection: psycopg.Connection[Any], onefold: Onefold) -> None:
    row = connection.execute("select * from onefold_enqueue('email')").fetchall()[0]
    assert row[1:] == (False, True, "queued", False, False)
    job = onefold.get(str(row[0]))
    assert job is not None
    assert (job.kind, job.payload, job.queue, job.priority) == ("email", {}, "default", 0)
    assert (job.max_attempts, job.tenant, job.unique_key) == (8, "", None)


def test_everything_can_be_said(connection: psycopg.Connection[Any], onefold: Onefold) -> None:
    moment = datetime(2040, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    row = ask(
        connection, kind="report", payload=Jsonb({"of": "May"}), queue="slow", priority=-5,
        max_attempts=3, run_at=moment, unique_key="k", group_key="g", tags=["a", "b"],
        metadata=Jsonb({"by": None}), unique_while="exists", unique_for=timedelta(hours=1),
        idempotency_key="K", idempotency_for=timedelta(days=3), tenant="acme",
        expires_at=moment + timedelta(days=1), request_id="r",
    )  # fmt: skip
    job = onefold.tenant("acme").get(str(row[0]))
    assert job is not None
    assert (job.kind, job.payload, job.queue, job.priority) == ("report", {"of": "May"}, "slow", -5)
    assert (job.max_attempts, job.run_at, job.group_key) == (3, moment, "g")
    assert (job.tags, job.metadata) == (("a", "b"), {"by": None})
    assert (job.expires_at, job.unique_key) == (moment + timedelta(days=1), "k")
    onefold.tenant("acme").delete(job.id)
    onefold.erase(tenant="acme")


@pytest.mark.parametrize("wrap", [json.dumps, Json, Jsonb], ids=["text", "json", "jsonb"])
def test_a_payload_is_text_json_or_jsonb(
    connection: psycopg.Connection[Any], onefold: Onefold, wrap: Any
) -> None:
    payload = {"b": [1, 2.5, None], "a": "é"}
    first = ask(connection, kind="email", payload=wrap(payload), unique_key="k")
    again = onefold.enqueue("email", payload, unique_key="k")
    assert again == Enqueued(str(first[0]), duplicate=True)


def test_the_servers_queues_can_be_named(
    connection: psycopg.Connection[Any], onefold: Onefold
) -> None:
    row = ask(connection, kind="email", queue="{acme}payments")
    job = onefold.get(str(row[0]))
    assert job is not None
    assert job.queue == "{acme}payments"
    with pytest.raises(errors.InvalidParameterValue, match="queue must"):
        ask(connection, kind="email", queue="{Acme}payments")


def test_asyncpg_needs_no_hint(postgres_url: str, schema: str, onefold: Onefold) -> None:
    async def enqueue() -> list[Any]:
        connection = await asyncpg.connect(postgres_url)
        try:
            text = f"select * from {schema}.onefold_enqueue($1, $2, unique_key => $3)"
            (row,) = await connection.fetch(text, "email", '{"to": 1}', "k")
            return list(row)
        finally:
            await connection.close()

    job_id, *rest = asyncio.run(enqueue())
    assert rest == [False, True, "queued", False, False]
    assert onefold.enqueue("email", {"to": 1}, unique_key="k").id == str(job_id)


# --- what it stores -------------------------------------------------------------------------------

NOON = datetime(2040, 1, 1, 12, tzinfo=UTC)
OWN = {
    "job": {"shard", "id", "tenant"},
    "claim": {"shard", "id", "owner", "fence", "tenant", "result"},
}
"""What two rows of the same request cannot have in common."""

REQUESTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "unique": {"unique_key": "k"},
    "across kinds": {"unique_key": "k", "across_kinds": True, "unique_while": "queued"},
    "for a time": {"unique_key": "k", "unique_for": timedelta(hours=1)},
    "published": {"idempotency_key": "K"},
    "all": {
        "queue": "slow", "priority": -5, "max_attempts": 3, "delay": timedelta(seconds=1.5),
        "unique_key": "k", "group_key": "g", "tags": ["a", "b"], "metadata": {"by": [1, None]},
        "unique_while": "exists", "unique_for": timedelta(days=2), "idempotency_key": "K",
        "idempotency_for": timedelta(days=3), "expires_at": NOON + timedelta(days=1),
    },
    "at a time": {"run_at": NOON + timedelta(microseconds=1)},
}  # fmt: skip


@pytest.mark.parametrize("request_", REQUESTS)
def test_rows_are_those_that_the_library_would_store(
    postgres_url: str, schema: str, connection: psycopg.Connection[Any], request_: str
) -> None:
    options = REQUESTS[request_]
    with Onefold(postgres_url, schema=schema, clock=lambda: NOON) as onefold:
        onefold.tenant("library").enqueue("email", {"to": 1}, **options)
        if "metadata" in options:
            options = {**options, "metadata": Jsonb(options["metadata"])}
        said = {"kind": "email", "payload": '{"to":1}', "tenant": "sql", "clock": NOON, **options}
        ask(connection, **said)
        for table, own in OWN.items():
            assert rows_of(connection, table, "sql", own) == (
                rows_of(connection, table, "library", own)
            )
        for tenant in ("library", "sql"):
            assert onefold.erase(tenant=tenant).jobs == 1


def rows_of(
    connection: psycopg.Connection[Any], table: str, tenant: str, own: set[str]
) -> list[dict[str, Any]]:
    text = f"select to_jsonb(t) from {table} as t where t.tenant = %s"
    found: list[dict[str, Any]] = []
    for (row,) in connection.execute(text.encode(), [tenant]).fetchall():
        if row.get("options") is not None:
            row["options"] = json.loads(row["options"])
        found.append({name: value for name, value in row.items() if name not in own})
    return found


# --- what it refuses ------------------------------------------------------------------------------

TYPES: dict[str, type] = {
    "run_at": datetime,
    "expires_at": datetime,
    "delay": timedelta,
    "unique_for": timedelta,
    "idempotency_for": timedelta,
    "max_wait": timedelta,
    "priority": int,
    "max_attempts": int,
}
"""What a field is in SQL, where it is not text; PostgreSQL itself refuses other types."""


def expressible(values: dict[str, Any]) -> bool:
    """Whether SQL has such a value: text without NUL, and types of its own."""
    for value in values.values():
        if isinstance(value, str) and any(character in value for character in NO_NUL):
            return False
        if isinstance(value, datetime) and value.tzinfo is None:
            return False
        if isinstance(value, bytes | bool | float | list):
            return False
    return True


@pytest.mark.parametrize("field", FIELDS)
def test_what_the_library_refuses_is_refused_by_name(
    connection: psycopg.Connection[Any], field: str
) -> None:
    refused = 0
    for options in filter(expressible, BAD[field]):
        asked = {"kind": "email", **options}
        if asked[field] is not None and not isinstance(asked[field], TYPES.get(field, str)):
            continue
        with pytest.raises(errors.InvalidParameterValue) as caught:
            ask(connection, **asked)
        assert caught.value.diag.column_name == field
        assert (caught.value.diag.message_primary or "").startswith(f"{field} ")
        refused += 1
    assert refused


@pytest.mark.parametrize("field", sorted(CONFLICTS.keys() - {"retention"}))
def test_options_that_contradict_each_other_are_named(
    connection: psycopg.Connection[Any], field: str
) -> None:
    for options in CONFLICTS[field]:
        with pytest.raises(errors.InvalidParameterValue) as caught:
            ask(connection, **{"kind": "email", **options})
        assert caught.value.diag.column_name == field


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("payload", "'k', null"),
        ("payload", "'k', jsonb 'null' -> 'a'"),
        ("payload", "'k', to_json(repeat('x', 1048575))"),
        ("payload", "'k', repeat('[', 257) || repeat(']', 257)"),
        ("payload", """'k', '{"a": "\\ud800"}'"""),
        ("payload", """'k', '["\\ud83d\\ude00\\udc00"]'"""),
        ("tags", "'k', tags => array_fill('t'::text, array[51])"),
        ("tags", "'k', tags => array['']"),
        ("tags", "'k', tags => array[null]"),
        ("metadata", "'k', metadata => '[]'"),
        ("metadata", "'k', metadata => jsonb_build_object('a', repeat('x', 65536))"),
        ("tenant", "'k', tenant => repeat('x', 513)"),
        ("tenant", "'k', tenant => null"),
        ("group_key", "'k', group_key => ''"),
        ("across_kinds", "'k', across_kinds => null"),
        ("run_at", "'k', run_at => 'infinity'"),
        ("expires_at", "'k', expires_at => '-infinity'"),
        ("delay", "'k', delay => '74000 days'"),
        ("clock", "'k', clock => 'infinity'"),
    ],
)
def test_so_is_what_only_sql_can_say(
    connection: psycopg.Connection[Any], field: str, arguments: str
) -> None:
    with pytest.raises(errors.InvalidParameterValue) as caught:
        connection.execute(f"select onefold_enqueue({arguments})".encode())
    assert caught.value.diag.column_name == field


@pytest.mark.parametrize(
    "arguments",
    [
        "'k', to_json(repeat('x', 1048574))",
        "'k', repeat('[', 256) || repeat(']', 256)",
        """'k', '["\\\\ud800 1e999", "[[["]'""",
        """'k', '{"a": "\\ud83d\\ude00\\u0000"}', unique_key => 'k'""",
        "'k', priority => -32768, max_attempts => 100, unique_key => repeat('ü', 256)",
        "repeat('ü', 200), 'null', run_at => '0001-01-01 00:00:00+00'",
    ],
)
def test_what_is_just_within_bounds_is_accepted_and_can_be_read(
    connection: psycopg.Connection[Any], onefold: Onefold, arguments: str
) -> None:
    text = f"select id::text from onefold_enqueue({arguments})"
    ((job_id,),) = connection.execute(text.encode()).fetchall()
    job = onefold.get(job_id)
    assert job is not None
    assert json.dumps(job.payload)


def test_text_that_is_no_json_is_refused_in_postgresqls_own_words(
    connection: psycopg.Connection[Any],
) -> None:
    with pytest.raises(
        errors.InvalidTextRepresentation, match="invalid input syntax for type json"
    ):
        ask(connection, kind="email", payload="{to: 1}")


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        ("null", "jobs must be a JSON array"),
        ('{"kind": "a"}', "jobs must be a JSON array"),
        ("[1]", "item 0: job must be a JSON object"),
        ('[{"kind": "a"}, {}]', "item 1: kind must not be null"),
        ('[{"kind": "a"}, {"kind": "a", "unique_kye": 1}]', "item 1: unique_kye is no option"),
        ('[{"kind": "a", "request_id": 1}, {"kind": "a", "priority": "x"}]', "item 1: .*integer"),
        ('[{"kind": "a", "run_at": "soon"}]', "item 0: invalid input syntax for type timestamp"),
    ],
)
def test_a_batch_that_cannot_be_stored_names_its_item(
    connection: psycopg.Connection[Any], onefold: Onefold, jobs: str, message: str
) -> None:
    with pytest.raises(psycopg.DataError, match=message):
        connection.execute("select onefold_enqueue_many(%s)", [jobs])
    assert len(onefold.find()) == 0


def test_a_batch_has_its_bound(connection: psycopg.Connection[Any]) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="jobs must be at most 10000, got 10001"):
        connection.execute("select onefold_enqueue_many(%s)", [json.dumps([{"kind": "a"}] * 10001)])


# --- the caller's transaction ---------------------------------------------------------------------


def test_a_duplicate_provokes_no_error_and_the_transaction_goes_on(
    connection: psycopg.Connection[Any], onefold: Onefold
) -> None:
    first = onefold.enqueue("email", unique_key="k", idempotency_key="K")
    with connection.transaction():
        assert ask(connection, kind="email", unique_key="k")[:2] == (UUID(first.id), True)
        assert ask(connection, kind="email", idempotency_key="K")[:2] == (UUID(first.id), True)
        other = ask(connection, kind="email", unique_key="other")
    assert onefold.get(str(other[0])) is not None


def test_a_rollback_takes_all_of_it_back(
    connection: psycopg.Connection[Any], onefold: Onefold
) -> None:
    with connection.transaction(force_rollback=True):
        ask(connection, kind="email", unique_key="k", idempotency_key="K")
    assert len(onefold.find()) == 0
    assert onefold.enqueue("email", unique_key="k", idempotency_key="K").inserted


def test_the_database_itself_may_refuse_at_repeatable_read(
    connection: psycopg.Connection[Any], onefold: Onefold
) -> None:
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with connection.transaction(force_rollback=True):
        connection.execute("select 1 from pg_class limit 1")
        onefold.enqueue("email", unique_key="k")
        with pytest.raises(errors.SerializationFailure):
            ask(connection, kind="email", unique_key="k")


def test_a_publish_key_remembers_a_job_that_is_gone(
    connection: psycopg.Connection[Any], onefold: Onefold
) -> None:
    row = ask(connection, kind="email", idempotency_key="K")
    job_id = str(row[0])
    onefold.delete(job_id)
    assert ask(connection, kind="email", idempotency_key="K") == (
        row[0],
        True,
        False,
        None,
        False,
        False,
    )
    assert onefold.enqueue("email", idempotency_key="K").state is None


def test_the_successor_of_a_holder_whose_life_is_over_is_the_next_holder(
    connection: psycopg.Connection[Any], onefold: Onefold
) -> None:
    """A rerun waits behind a running holder, which goes back to the queue and expires there."""
    soon = datetime.now(UTC) + timedelta(days=1)
    first = onefold.enqueue("email", {"n": 1}, unique_key="k", expires_at=soon)
    (job,) = onefold.engine.take(["default"], worker="w", lease=timedelta(minutes=1))
    onefold.enqueue("email", {"n": 2}, unique_key="k", on_duplicate="rerun")
    onefold.engine.hand_back([job])
    later = ask(
        connection, kind="email", payload='{"n": 2}', unique_key="k", clock=soon + timedelta(days=1)
    )
    assert later[1:] == (True, False, "queued", False, False)
    assert str(later[0]) != first.id
    successor, old = onefold.get(str(later[0])), onefold.get(first.id)
    assert successor is not None
    assert old is not None
    assert successor.payload == {"n": 2}
    assert (old.state, old.reason) == ("dead", "expired")


# --- who may call it, and how it is found ---------------------------------------------------------


def test_the_callers_search_path_decides_nothing(
    connection: psycopg.Connection[Any], schema: str, onefold: Onefold
) -> None:
    """A function of the caller's own that is called like one of PostgreSQL's is not called."""
    with connection.transaction(force_rollback=True):
        named = sql.Identifier(schema)
        for text in (
            "create function {}.sha256(bytea) returns bytea language sql as 'select $1'",
            "set local search_path to {}, pg_catalog",
        ):
            connection.execute(sql.SQL(text).format(named))
        first = ask(connection, kind="email", unique_key="k")
        assert onefold.within(connection).enqueue("email", unique_key="k").id == str(first[0])


GRANTED: tuple[LiteralString, ...] = (
    "grant usage on schema {schema} to {role}",
    "grant select, insert, update on job, claim to {role}",
    "grant insert on duplicate to {role}",
    "grant select on meta to {role}",
)
DEFINED: tuple[LiteralString, ...] = (
    "grant usage on schema {schema} to {role}",
    "alter function onefold_enqueue_many security definer",
)


@pytest.mark.parametrize("definer", [False, True], ids=["as its caller", "security definer"])
def test_it_needs_the_rights_that_the_page_names(
    connection: psycopg.Connection[Any], schema: str, *, definer: bool
) -> None:
    grants = DEFINED if definer else GRANTED
    jobs = json.dumps([{"kind": "a", "unique_key": "r", "idempotency_key": "R"}] * 2)
    with connection.transaction(force_rollback=True):
        role = sql.Identifier(f"{schema}_guest")
        for text in ("create role {role}", *grants, "set local role {role}"):
            named = sql.SQL(text).format(schema=sql.Identifier(schema), role=role)
            connection.execute(named)
        rows = connection.execute("select duplicate from onefold_enqueue_many(%s)", [jobs])
        assert rows.fetchall() == [(False,), (True,)]


def test_settings_of_the_caller_change_no_fingerprint(
    connection: psycopg.Connection[Any], onefold: Onefold
) -> None:
    payload = {"pi": 3.141592653589793, "text": "\\ \n"}
    onefold.enqueue("email", payload, unique_key="k")
    for setting in ("extra_float_digits = -10", "datestyle = 'german'", "timezone = 'Asia/Tokyo'"):
        connection.execute(f"set {setting}".encode())
    assert ask(connection, kind="email", payload=json.dumps(payload), unique_key="k")[1:] == (
        True, False, "queued", False, False,
    )  # fmt: skip


# --- ids and wake-ups -----------------------------------------------------------------------------


def test_ids_are_of_version_7_and_in_order(connection: psycopg.Connection[Any]) -> None:
    rows = connection.execute(
        "select e.id from generate_series(1, 200) as n"
        " cross join lateral onefold_enqueue('a', to_json(n)) as e"
    ).fetchall()
    ids: list[UUID] = [row[0] for row in rows]
    assert {job_id.version for job_id in ids} == {7}
    assert {str(job_id)[19] for job_id in ids} <= set("89ab")
    assert len(set(ids)) == 200
    # To the microsecond: a call takes longer.
    assert shown(ids) == sorted(shown(ids))


def shown(ids: Iterable[UUID]) -> list[str]:
    return [enqueue_order(str(job_id)) for job_id in ids]


def test_workers_are_woken_at_the_commit_of_a_new_job_and_of_no_other(
    postgres_url: str, connection: psycopg.Connection[Any], schema: str, onefold: Onefold
) -> None:
    onefold.enqueue("email", unique_key="held")
    with psycopg.connect(postgres_url, autocommit=True) as listening:
        channel = f'"{schema}".job'[:63]
        listening.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))
        with connection.transaction():
            ask(connection, kind="email", queue="one")
            ask(connection, kind="email", queue="none", unique_key="held")
            ask(connection, kind="email", queue="two")
        listening.execute("select 1")
        heard = {notice.payload for notice in listening.notifies(timeout=0)}
    assert heard == {"one", "two"}
