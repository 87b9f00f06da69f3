"""A record of every change of every job, written by triggers in the tables' own transactions.

What was rolled back is not in it, and what is in it is in the order in which the database did it,
key by key. So the rules can be checked for every moment of a run, and not only for its end.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

import msgspec

from tests.fixtures.place import Place

Key: TypeAlias = tuple[str, str]

QUEUED, RUNNING, CANCELLED = 0, 1, 4
PLACEHOLDER = "null"
"""What a replay reserves a key with: stored and deleted in one transaction."""


class Change(NamedTuple):
    """A row as it was and as it is. A row that is not there has state None."""

    number: int
    id: str
    key: Key | None
    was: int | None
    state: int | None
    held: bool
    holds: bool
    fence: int
    payload: str
    next: str | None
    next_was: str | None
    payload_was: str


def install(place: Place) -> None:
    """Record every change from now on."""
    with place.transaction() as connection:
        held = _holding(place, connection)
        for statement in _postgres(place, held) if place.on_postgres else _sqlite(held):
            connection.execute(statement)


def _holding(place: Place, connection: Any) -> str:
    """When a row holds its key, in the words of the index that enforces it; {0} is the row."""
    if place.on_postgres:
        index = f"'{place.schema}.job_unique'::regclass"
        query = f"select pg_get_expr(indpred, indrelid) from pg_index where indexrelid = {index}"
        columns = (
            f"select attname from pg_attribute where attrelid = '{place.table('job')}'::regclass"
        )
    else:
        query = "select sql from sqlite_master where name = 'onefold_job_unique'"
        columns = "select name from pragma_table_info('onefold_job')"
    ((definition,),) = connection.execute(query).fetchall()
    names = "|".join(name for (name,) in connection.execute(columns).fetchall())
    condition = definition if place.on_postgres else definition.partition(" where ")[2]
    assert condition
    return re.sub(rf"\b({names})\b", r"{0}\1", condition, flags=re.IGNORECASE)


_TABLE = """(
    {number}, id text not null, unique_kind text, unique_key text, was integer, state integer,
    held boolean, holds boolean, fence bigint, payload text, next text, next_was text,
    payload_was text
)"""
_INTO = (
    "(id, unique_kind, unique_key, was, state, held, holds, fence, payload, next, next_was,"
    " payload_was)"
)


def _values(held: str, new: str | None, old: str | None) -> str:
    row = new or old
    return ", ".join(
        [
            f"{row}id", f"{row}unique_kind", f"{row}unique_key",
            f"{old}state" if old else "null",
            f"{new}state" if new else "null",
            held.format(old) if old else "false",
            held.format(new) if new else "false",
            f"{row}fence", f"{row}payload",
            f"{new}next" if new else "null",
            f"{old}next" if old else "null",
            f"{old}payload" if old else "null",
        ]
    )  # fmt: skip


_EVENTS = {"insert": ("new.", None), "update": ("new.", "old."), "delete": (None, "old.")}


def _sqlite(held: str) -> Iterator[str]:
    yield f"create table audit {_TABLE.format(number='number integer primary key autoincrement')}"
    for event, (new, old) in _EVENTS.items():
        yield (
            f"create trigger audit_{event} after {event} on onefold_job begin"
            f" insert into audit {_INTO} values ({_values(held, new, old)}); end"
        )


def _postgres(place: Place, held: str) -> Iterator[str]:
    audit = place.table("audit")
    yield f"create table {audit} {_TABLE.format(number='number bigserial primary key')}"
    for event, (new, old) in _EVENTS.items():
        function = place.table(f"audit_{event}")
        yield (
            f"create function {function}() returns trigger language plpgsql as $$ begin"
            f" insert into {audit} {_INTO} values ({_values(held, new, old)}); return null; end $$"
        )
        yield (
            f"create trigger audit_{event} after {event} on {place.table('job')}"
            f" for each row execute function {function}()"
        )


def read(place: Place) -> list[Change]:
    """All changes so far."""
    table = place.table("audit") if place.on_postgres else "audit"
    rows = place.rows("select * from {audit} order by number", audit=table)
    return [_change(*row) for row in rows]


def _change(number: int, job_id: str, kind: str | None, key: str | None, *rest: Any) -> Change:
    was, state, held, holds, *others = rest
    named = None if kind is None or key is None else (kind, key)
    return Change(number, job_id, named, was, state, bool(held), bool(holds), *others)


class Books(NamedTuple):
    """What the racers were told, to be held against what happened."""

    answered: set[str]
    """Ids of new jobs whose transaction was committed."""
    undone: set[str]
    """Ids of new jobs whose transaction was rolled back."""
    triggers: set[int]
    """Numbers of requests to run again, whose transaction was committed."""


def check(changes: list[Change], books: Books) -> None:
    """Every rule that must hold at every moment."""
    stored = {change.id for change in changes if change.was is None}
    assert books.answered <= stored, "a job that was answered for was never stored"
    assert not books.undone & stored, "a job outlived the rollback of its transaction"
    _check_holders(changes)
    _check_deliveries(changes)
    triggered = [
        change
        for change in changes
        if change.key and change.key[1].startswith("rerun") and change.payload != PLACEHOLDER
    ]
    _check_successors(triggered)
    seen = _check_triggers(triggered)
    assert books.triggers <= seen, "a trigger that was answered for was never stored"


def _check_holders(changes: Iterable[Change]) -> None:
    """One holder of a key at a time, and a key given up at the take is never taken back."""
    holders: dict[Key, str] = {}
    given_up: set[str] = set()
    for change in changes:
        if change.key is None:
            continue
        if change.holds:
            holder = holders.setdefault(change.key, change.id)
            assert holder == change.id, f"{change.key} has two holders: {holder} and {change}"
        elif holders.get(change.key) == change.id:
            del holders[change.key]
        if (change.was, change.state) == (QUEUED, RUNNING) and change.held and not change.holds:
            given_up.add(change.id)
        if change.id in given_up:
            assert not change.holds, f"a key that was given up is held again: {change}"


def _check_deliveries(changes: list[Change]) -> None:
    """Fences grow by one with every take and never otherwise: nobody is given a job twice."""
    for job_id, mine in groupby(sorted(changes, key=lambda c: (c.id, c.number)), lambda c: c.id):
        fence = 0
        for change in mine:
            fence += (change.was, change.state) == (QUEUED, RUNNING)
            assert change.fence == fence, f"{job_id}: {change}"


def _check_successors(changes: list[Change]) -> None:
    """However a holder ends, what waited behind it becomes a job."""
    stored = {number(change.payload) for change in changes if change.was is None}
    owed = {
        number(msgspec.json.decode(change.next_was)["payload"])
        for change in changes
        if change.was == RUNNING and change.state not in {QUEUED, RUNNING} and change.next_was
    }
    assert owed <= stored, f"successors that were never stored: {owed - stored}"


def _check_triggers(changes: list[Change]) -> set[int]:
    """The newest trigger of each key runs, or is cancelled, after it came; none is stale."""
    pending: dict[Key, int] = {}
    newest: dict[Key, int] = defaultdict(int)
    started: set[tuple[str, int]] = set()
    order: dict[int, int] = {}
    for change in changes:
        assert change.key is not None
        trigger = _trigger(change)
        # A successor is stored with the payload of a trigger that has been seen before.
        if trigger is not None and not (change.was is None and trigger in order):
            order[trigger] = change.number
            pending[change.key] = newest[change.key] = trigger
        if (change.was, change.state) in {(QUEUED, RUNNING), (QUEUED, CANCELLED)}:
            ran = number(change.payload)
            if (change.id, ran) not in started:
                behind = order[ran] < order[newest[change.key]] and change.key not in pending
                assert not behind, f"a stale trigger was run: {change}"
            started.add((change.id, ran))
            if pending.get(change.key) == ran:
                del pending[change.key]
    assert not pending, f"triggers that were never run: {pending}"
    return set(order)


def _trigger(change: Change) -> int | None:
    """The number of the trigger that made this change, if one did."""
    if change.was is None:
        return number(change.payload)
    if change.next is not None and change.next != change.next_was:
        payload: str = msgspec.json.decode(change.next)["payload"]
        return number(payload)
    if change.state is not None and change.payload != change.payload_was:
        return number(change.payload)
    return None


def number(payload: str) -> int:
    """The number that each request of a run carries."""
    return int(msgspec.json.decode(payload)["number"])
