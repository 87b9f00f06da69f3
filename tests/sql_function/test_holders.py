"""Holders that SQL changes are left as the library would have left them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from onefold import NewJob, Onefold
from onefold.model.retry import Fixed
from tests.fixtures.soak import repetitions
from tests.sql_function.from_sql import answered, call_all, members

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onefold.model.job import Enqueued, OnDuplicate

NOON = datetime(2040, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
TENANTS = ("library", "sql")
OWN = {"id", "shard", "tenant"}
"""What two rows of the same request cannot have in common."""

spans = st.sampled_from([None, None, HOUR, 3 * HOUR])
scopes = st.fixed_dictionaries(
    {},
    optional={
        "unique_while": st.sampled_from(["queued", "active", "exists"]),
        "unique_for": st.just(HOUR),
        "across_kinds": st.just(True),  # noqa: FBT003
    },
)


@st.composite
def jobs(draw: st.DrawFn) -> NewJob:
    """Mostly with one key: they are to meet."""
    key = draw(st.sampled_from(["a", "a", "a", "b", None]))
    scope: dict[str, Any] = {} if key is None else draw(scopes)
    return NewJob(
        draw(st.sampled_from(["email", "email", "letter"])),
        draw(st.integers(0, 2)),
        unique_key=key,
        queue=draw(st.sampled_from(["default", "slow"])),
        priority=draw(st.integers(0, 2)),
        delay=draw(spans),
        idempotency_key=draw(st.sampled_from([None, None, None, "P"])),
        group_key=draw(st.sampled_from([None, "g"])),
        tags=draw(st.sampled_from([(), ("t",)])),
        **scope,
    )


batches = st.lists(jobs(), min_size=1, max_size=4)
NOW, LATER = NewJob("email", 1, unique_key="a"), NewJob("email", 2, unique_key="a", delay=HOUR)
WORDS: tuple[OnDuplicate, ...] = ("rerun", "replace", "rerun", "replace", "keep", "raise")


@pytest.fixture(scope="module")
def library(postgres_url: str, schema: str) -> Iterator[Onefold]:
    with Onefold(postgres_url, schema=schema, clock=lambda: NOON) as found:
        yield found


@settings(
    max_examples=repetitions(60, soak=3000),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    before=batches,
    asked=batches,
    way=st.sampled_from(["running", "queued", "retried", "rerun and retried", "completed"]),
    on_duplicate=st.sampled_from(WORDS),
    max_wait=spans,
)
@example(before=[NOW], asked=[LATER], way="queued", on_duplicate="rerun", max_wait=None)
@example(before=[LATER], asked=[LATER], way="queued", on_duplicate="replace", max_wait=HOUR / 2)
@example(
    before=[NewJob("letter")], asked=[NOW, LATER], way="queued", on_duplicate="rerun", max_wait=None
)
@example(before=[NOW], asked=[LATER, NOW], way="running", on_duplicate="rerun", max_wait=None)
def test_a_batch_leaves_what_the_library_leaves(  # noqa: PLR0917
    connection: psycopg.Connection[Any],
    schema: str,
    library: Onefold,
    before: list[NewJob],
    asked: list[NewJob],
    way: str,
    on_duplicate: OnDuplicate,
    max_wait: timedelta | None,
) -> None:
    policy: dict[str, Any] = {"on_duplicate": on_duplicate}
    if on_duplicate == "replace":
        policy["max_wait"] = max_wait
    held: dict[str, list[Enqueued]] = {}
    for tenant in TENANTS:
        library.erase(tenant=tenant)
    for tenant in TENANTS:
        patient = [msgspec.structs.replace(job, backoff=Fixed(2 * HOUR)) for job in before]
        held[tenant] = list(library.tenant(tenant).enqueue_many(patient))
    go(library, way, before)

    told: dict[str, Any] = {}
    try:
        told["library"] = library.tenant("library").enqueue_many(asked, **policy)
    except Exception as error:  # noqa: BLE001 - whatever it is, SQL has to say it too
        told["library"] = type(error).__name__
    batch = msgspec.json.encode([members(job) for job in asked]).decode()
    arguments = {"jobs": batch, "tenant": "sql", "clock": NOON, **policy}
    try:
        rows = call_all(connection, schema, "onefold_enqueue_many", arguments)
        told["sql"] = [answered(row) for row in rows]
    except psycopg.errors.UniqueViolation:
        told["sql"] = "AlreadyEnqueued"

    seen = {
        tenant: labelled(held[tenant], told[tenant], rows_of(connection, tenant))
        for tenant in TENANTS
    }
    assert seen["sql"] == seen["library"]


def go(library: Onefold, way: str, before: Sequence[NewJob]) -> None:
    """Take what is due, on both sides, and let it go so far."""
    if way == "queued":
        return
    taken = library.engine.take(["default", "slow"], limit=100, worker="w", lease=HOUR)
    if way == "rerun and retried":
        for tenant in TENANTS:
            library.tenant(tenant).enqueue_many(before, on_duplicate="rerun")
    if way.endswith("retried"):
        library.engine.retry(taken)
    elif way == "completed":
        library.engine.finish(taken)


def rows_of(connection: psycopg.Connection[Any], tenant: str) -> dict[str, dict[str, Any]]:
    rows = connection.execute("select to_jsonb(j) from job as j where j.tenant = %s", [tenant])
    return {row["id"]: plain(row) for (row,) in rows.fetchall()}


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """Without what is its own; JSON read, however it is spelled."""
    found = {name: value for name, value in row.items() if name not in OWN and name != "fence"}
    for name in ("options", "payload"):
        found[name] = None if found[name] is None else json.loads(found[name])
    if found.get("next") is not None:
        found["next"] = plain(json.loads(found["next"]))
    return found


def labelled(
    held: Sequence[Enqueued], told: Sequence[Enqueued] | str, rows: dict[str, dict[str, Any]]
) -> tuple[object, dict[str, dict[str, Any]]]:
    """Answers and rows, with jobs named by the item that made them."""
    answers = [] if isinstance(told, str) else list(told)
    labels: dict[str, str] = {}
    for word, some in (("held", held), ("new", answers)):
        for number, answer in enumerate(some):
            labels.setdefault(answer.id, f"{word} {number}")
    said = [
        (labels[each.id], each.duplicate, each.state, each.mismatch, each.replaced)
        for each in answers
    ]
    # A successor has become a job where its holder has ended: nobody was told its id.
    named = {
        labels.get(job_id, f"follows {row['unique_key']}"): row for job_id, row in rows.items()
    }
    return said or told, named
