"""`onefold_enqueue` for its callers: types, rows, errors, ids, notifications, and transactions."""

import asyncio
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString

import asyncpg
import psycopg
import pytest
from psycopg import errors, sql
from psycopg.types.json import Json, Jsonb

from onefold import Enqueued, Onefold
from onefold.model.ids import enqueue_order
from onefold_contract.cases.bad_input import BAD, CONFLICTS
from tests.sql_function.from_sql import call

Connection = psycopg.Connection[Any]

# --- arguments and rows ---------------------------------------------------------------------------


def test_a_payload_is_text_or_a_value_that_becomes_json(
    connection: Connection, schema: str, onefold: Onefold
) -> None:
    payload = {"b": [1, 2.5, None], "a": "é"}
    for wrap in (json.dumps, Json, Jsonb):
        key = wrap.__name__
        first = call(connection, schema, {"kind": "k", "payload": wrap(payload), "unique_key": key})
        assert onefold.enqueue("k", payload, unique_key=key) == Enqueued(first.id, duplicate=True)
    for value, expected in (("7", 7), ("true", True), ("array[1, 2]", [1, 2])):
        text = f"select id::text from onefold_enqueue('k', {value})"
        ((job_id,),) = connection.execute(text.encode()).fetchall()
        job = onefold.get(job_id)
        assert job is not None
        assert job.payload == expected


def test_asyncpg_needs_no_casts(postgres_url: str, schema: str, onefold: Onefold) -> None:
    async def enqueue() -> list[Any]:
        connection = await asyncpg.connect(postgres_url)
        try:
            text = f"select * from {schema}.onefold_enqueue($1, $2, unique_key => $3)"
            (row,) = await connection.fetch(text, "email", '{"to": 1}', "k")
            return list(row)
        finally:
            await connection.close()

    job_id, *rest = asyncio.run(enqueue())
    assert rest == [False, True, "ready", False]
    assert onefold.enqueue("email", {"to": 1}, unique_key="k").id == str(job_id)


NOON = datetime(2040, 1, 1, 12, tzinfo=UTC)
OWN = {
    "job": {"shard", "id", "tenant"},
    "claim": {"shard", "id", "owner", "fence", "tenant", "result"},
}
"""Columns that differ between two rows of the same request."""

REQUESTS: list[dict[str, Any]] = [
    {},
    {"unique_key": "k"},
    {"unique_key": "k", "across_kinds": True, "unique_while": "queued"},
    {"unique_key": "k", "unique_for": timedelta(hours=1)},
    {"idempotency_key": "K"},
    {
        "queue": "{acme}slow", "priority": -5, "max_attempts": 3, "delay": timedelta(seconds=1.5),
        "unique_key": "k", "group_key": "g", "tags": ["a", "b"], "metadata": {"by": [1, None]},
        "unique_while": "exists", "unique_for": timedelta(days=2), "idempotency_key": "K",
        "idempotency_for": timedelta(days=3), "expires_at": NOON + timedelta(days=1),
    },
    {"run_at": NOON + timedelta(microseconds=1), "metadata": {"by": None}},
]  # fmt: skip


def test_the_rows_are_those_that_the_library_stores(
    postgres_url: str, schema: str, connection: Connection
) -> None:
    with Onefold(postgres_url, schema=schema, clock=lambda: NOON) as onefold:
        for options in REQUESTS:
            onefold.tenant("library").enqueue("email", {"to": 1}, **options)
            arguments: dict[str, Any] = {
                "kind": "email",
                "payload": '{"to":1}',
                "tenant": "sql",
                "clock": NOON,
            }
            if "metadata" in options:
                arguments["metadata"] = Jsonb(options["metadata"])
            call(connection, schema, options | arguments)
            for table, own in OWN.items():
                stored = [rows_of(connection, table, tenant, own) for tenant in ("sql", "library")]
                assert stored[0] == stored[1], options
            for tenant in ("library", "sql"):
                assert onefold.keys.erase(tenant=tenant).jobs == 1


def rows_of(connection: Connection, table: str, tenant: str, own: set[str]) -> list[dict[str, Any]]:
    text = f"select to_jsonb(t) from {table} as t where t.tenant = %s"
    found: list[dict[str, Any]] = []
    for (row,) in connection.execute(text.encode(), [tenant]).fetchall():
        if row.get("options") is not None:
            row["options"] = json.loads(row["options"])
        found.append({name: value for name, value in row.items() if name not in own})
    return found


# --- errors ---------------------------------------------------------------------------------------

FIELDS: dict[str, type] = {
    **dict.fromkeys(
        ("kind", "queue", "unique_key", "idempotency_key", "request_id", "unique_while",
         "on_duplicate", "on_mismatch"), str,
    ),
    **dict.fromkeys(("run_at", "expires_at"), datetime),
    **dict.fromkeys(("delay", "unique_for", "idempotency_for"), timedelta),
    **dict.fromkeys(("priority", "max_attempts"), int),
}  # fmt: skip
"""The arguments that the contract has bad values for, with their types in SQL."""


def can_be_sent(value: Any, kind: type) -> bool:
    """Whether SQL has such a value: NUL, surrogates and naive datetimes do not exist there."""
    if isinstance(value, str) and ("\x00" in value or "\ud800" in value):
        return False
    if isinstance(value, datetime) and value.tzinfo is None:
        return False
    return value is None or (isinstance(value, kind) and not isinstance(value, bool))


def rejected_argument(connection: Connection, schema: str, options: Mapping[str, Any]) -> str:
    with pytest.raises(errors.InvalidParameterValue) as caught:
        call(connection, schema, {"kind": "email"} | dict(options))
    name = caught.value.diag.column_name or ""
    assert (caught.value.diag.message_primary or "").startswith(f"{name} ")
    return name


def test_the_function_rejects_what_the_library_rejects(connection: Connection, schema: str) -> None:
    for field, kind in FIELDS.items():
        sent = [options for options in BAD[field] if can_be_sent(options[field], kind)]
        assert sent, field
        for options in sent:
            assert rejected_argument(connection, schema, options) == field, options


def test_options_that_contradict_each_other_are_rejected(
    connection: Connection, schema: str
) -> None:
    for field in CONFLICTS.keys() - {"retention", "max_wait", "on_mismatch"}:
        for options in CONFLICTS[field]:
            assert rejected_argument(connection, schema, options) == field, options


def test_a_holder_is_not_changed_from_sql(connection: Connection, schema: str) -> None:
    for word in ("replace", "rerun"):
        options = {"unique_key": "k", "on_duplicate": word}
        assert rejected_argument(connection, schema, options) == "on_duplicate"


BAD_IN_SQL: list[tuple[str, str]] = [
    ("payload", "'k', null"),
    ("payload", "'k', jsonb 'null' -> 'a'"),
    ("payload", "'k', to_json(repeat('x', 1048575))"),
    ("payload", "'k', repeat('[', 257) || repeat(']', 257)"),
    ("payload", "'k', '{\"a\": [1e309]}'"),
    ("queue", "'k', queue => '{Acme}payments'"),
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
]


def test_bad_values_that_only_sql_has_are_rejected(connection: Connection) -> None:
    for field, arguments in BAD_IN_SQL:
        with pytest.raises(errors.InvalidParameterValue) as caught:
            connection.execute(f"select onefold_enqueue({arguments})".encode())
        assert caught.value.diag.column_name == field, arguments


def test_a_payload_that_jsonb_rejects_is_rejected(connection: Connection, schema: str) -> None:
    for payload in ("{to: 1}", "", r'"\ud800"', r'"\u0000"', "1e999999"):
        with pytest.raises(psycopg.DataError):
            call(connection, schema, {"kind": "email", "payload": payload})


def test_values_at_their_bounds_are_accepted_and_can_be_read(
    connection: Connection, onefold: Onefold
) -> None:
    for arguments in (
        "'k', to_json(repeat('x', 1048574))",
        "'k', repeat('[', 256) || repeat(']', 256)",
        """'k', '["\\\\ud800 1e999", "[[["]'""",
        "'k', priority => -32768, max_attempts => 100, unique_key => repeat('ü', 256)",
        "repeat('ü', 200), 'null', run_at => '0001-01-01 00:00:00+00'",
    ):
        text = f"select id::text from onefold_enqueue({arguments})"
        ((job_id,),) = connection.execute(text.encode()).fetchall()
        job = onefold.get(job_id)
        assert job is not None, arguments
        assert json.dumps(job.payload)


# --- the caller's transaction ---------------------------------------------------------------------


def test_repeatable_read_can_fail_with_a_serialization_error(
    connection: Connection, schema: str, onefold: Onefold
) -> None:
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with connection.transaction(force_rollback=True):
        connection.execute("select 1 from pg_class limit 1")
        onefold.enqueue("email", unique_key="k")
        with pytest.raises(errors.SerializationFailure):
            call(connection, schema, {"kind": "email", "unique_key": "k"})


def test_the_successor_of_an_expired_holder_is_the_next_holder(
    connection: Connection, schema: str, onefold: Onefold
) -> None:
    """A rerun waits for a running holder, which returns to its queue and expires there."""
    soon = datetime.now(UTC) + timedelta(days=1)
    first = onefold.enqueue("email", {"n": 1}, unique_key="k", expires_at=soon)
    (job,) = onefold.deliveries.take(["default"], worker="w", lease=timedelta(minutes=1))
    onefold.enqueue("email", {"n": 2}, unique_key="k", on_duplicate="rerun")
    onefold.deliveries.hand_back([job])
    options = {"kind": "email", "payload": '{"n": 2}', "unique_key": "k"}
    later = call(connection, schema, {**options, "clock": soon + timedelta(days=1)})
    assert later == Enqueued(later.id, duplicate=True)
    successor, old = onefold.get(later.id), onefold.get(first.id)
    assert successor is not None
    assert old is not None
    assert successor.payload == {"n": 2}
    assert (old.state, old.reason) == ("dead", "expired")


# --- rights and settings --------------------------------------------------------------------------


def test_the_search_path_of_the_caller_changes_nothing(
    connection: Connection, schema: str, onefold: Onefold
) -> None:
    """The function does not call a function of the caller that has the name of a built-in."""
    with connection.transaction(force_rollback=True):
        named = sql.Identifier(schema)
        for text in (
            "create function {}.sha256(bytea) returns bytea language sql as 'select $1'",
            "create function {}.to_json(anyelement) returns json language sql as 'select null'",
            "set local search_path to {}, pg_catalog",
        ):
            connection.execute(sql.SQL(text).format(named))
        options = {"kind": "email", "payload": Jsonb({"a": 1}), "unique_key": "k"}
        first = call(connection, schema, options)
        again = onefold.within(connection).enqueue("email", {"a": 1}, unique_key="k")
        assert again == Enqueued(first.id, duplicate=True)


GRANTED: tuple[LiteralString, ...] = (
    "grant select, insert, update on job, claim to {role}",
    "grant insert on duplicate to {role}",
    "grant select on meta to {role}",
)


def test_the_rights_on_the_page_are_enough(connection: Connection, schema: str) -> None:
    rows = connection.execute(
        "select p.oid::regprocedure::text from pg_proc as p"
        " where p.proname = 'onefold_enqueue' and p.pronamespace = %s::regnamespace",
        [schema],
    )
    defined = [f"alter function {name} security definer".encode() for (name,) in rows]
    role = sql.Identifier(f"{schema}_guest")
    options = {"kind": "a", "unique_key": "r", "idempotency_key": "R"}
    for grants in ([sql.SQL(text).format(role=role) for text in GRANTED], defined):
        with connection.transaction(force_rollback=True):
            connection.execute(sql.SQL("create role {}").format(role))
            usage = sql.SQL("grant usage on schema {} to {}").format(sql.Identifier(schema), role)
            for statement in (usage, *grants):
                connection.execute(statement)
            connection.execute(sql.SQL("set local role {}").format(role))
            answers = [call(connection, schema, options) for _ in range(2)]
            assert [answer.duplicate for answer in answers] == [False, True]


def test_settings_of_the_caller_change_no_fingerprint(
    connection: Connection, schema: str, onefold: Onefold
) -> None:
    payload = {"pi": 3.141592653589793, "text": "\\ \n"}
    first = onefold.enqueue("email", payload, unique_key="k")
    for setting in ("extra_float_digits = -10", "datestyle = 'german'", "timezone = 'Asia/Tokyo'"):
        connection.execute(f"set {setting}".encode())
    options = {"kind": "email", "payload": json.dumps(payload), "unique_key": "k"}
    assert call(connection, schema, options) == Enqueued(first.id, duplicate=True)


# --- ids and notifications ------------------------------------------------------------------------


def test_ids_are_uuids_of_version_7_in_order(connection: Connection) -> None:
    rows = connection.execute(
        "select e.id from generate_series(1, 200) as n"
        " cross join lateral onefold_enqueue('a', to_json(n)) as e"
    ).fetchall()
    ids = [row[0] for row in rows]
    assert {job_id.version for job_id in ids} == {7}
    assert {str(job_id)[19] for job_id in ids} <= set("89ab")
    assert len(set(ids)) == 200
    # Ordered by microseconds: a call takes longer.
    shown = [enqueue_order(str(job_id)) for job_id in ids]
    assert shown == sorted(shown)


def test_the_commit_of_a_new_job_notifies_workers(
    postgres_url: str, connection: Connection, schema: str, onefold: Onefold
) -> None:
    onefold.enqueue("email", unique_key="held")
    with psycopg.connect(postgres_url, autocommit=True) as listening:
        channel = f'"{schema}".job'[:63]
        listening.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))
        with connection.transaction():
            for options in ({"queue": "a"}, {"queue": "b", "unique_key": "held"}, {"queue": "c"}):
                call(connection, schema, {"kind": "email", **options})
        listening.execute("select 1")
        heard = {notice.payload for notice in listening.notifies(timeout=0)}
    assert heard == {"a", "c"}
