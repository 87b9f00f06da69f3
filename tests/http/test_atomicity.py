"""One commit: the rows of a handler, the answer, and jobs by `once.within()`."""

import logging

import psycopg
import pytest

from onefold import Onefold, OutsideTransactionWarning, UsageError
from onefold.web.fastapi import Once
from tests.fixtures.colours import Store
from tests.fixtures.connections import Effects
from tests.fixtures.place import Place
from tests.http.apps import fastapi_app, keyed_app
from tests.http.apps_talk import Talk, part, visited
from tests.http.scenario_modes import LEASED_SQLITE, LIBRARIES, OURS_POSTGRES, OURS_SQLITE
from tests.http.scenario_site import OpenSite

SETTLED = 1
OURS = pytest.mark.parametrize("mode", [OURS_SQLITE, OURS_POSTGRES], ids=str)
JOINED = pytest.mark.parametrize(
    "mode",
    [
        OURS_POSTGRES,
        LIBRARIES[-1],
        *(pytest.param(mode, marks=pytest.mark.prove) for mode in (OURS_SQLITE, *LIBRARIES[:-1])),
    ],
    ids=str,
)

CONFLICT = """
create function "{schema}".conflict() returns trigger language plpgsql as
$$ begin raise exception 'could not serialize' using errcode = '40001'; end $$
"""
AT_COMMIT = """
create constraint trigger conflict after insert on {table}
deferrable initially deferred for each row execute function "{schema}".conflict()
"""


@JOINED
async def test_h160_rows_and_answer_are_seen_together(
    open_site: OpenSite, effects: Effects
) -> None:
    site = await open_site()

    async with site.held():
        during = (effects.numbers, effects.claims)
    after = (effects.numbers, effects.claims)

    assert during == ([], [])
    assert after == ([1], [("k", SETTLED)])


@OURS
async def test_h141_h161_a_client_that_is_cut_off_after_the_commit_gets_the_answer_with_a_retry(
    open_site: OpenSite,
) -> None:
    site = await open_site()
    talk = Talk(fastapi_app(site.shop), part(b'{"amount": 1}'), is_cut_off=True)

    with pytest.raises(ConnectionResetError):
        await talk.run()

    assert (await site.post()).is_replay
    assert site.payments == [1]


async def test_h163_a_handler_that_writes_elsewhere_is_told_that_it_does(
    onefold: Onefold, caplog: pytest.LogCaptureFixture
) -> None:
    async def elsewhere(once: Once) -> str:
        return "written on a connection of its own"

    app = keyed_app(onefold, elsewhere, transaction=onefold)
    with caplog.at_level(logging.WARNING, "onefold.web"):
        await visited(app, b"")

    assert "POST /pay is joined, and its handler has not used once.connection" in caplog.text


@pytest.mark.parametrize(
    "mode",
    [
        OURS_POSTGRES,
        *(
            pytest.param(mode, marks=pytest.mark.prove)
            for mode in LIBRARIES
            if mode.dialect == "postgres"
        ),
    ],
    ids=str,
)
async def test_h164_a_conflict_at_the_commit_is_told_and_leaves_nothing(
    open_site: OpenSite, store: Store, effects: Effects
) -> None:
    site = await open_site()
    with psycopg.connect(store.url, autocommit=True) as connection:
        for text in (CONFLICT, AT_COMMIT):
            made = text.format(schema=store.schema, table=effects.table)
            connection.execute(made.encode())
        refused = await site.post()
        left = (effects.numbers, effects.claims)
        connection.execute(f"drop trigger conflict on {effects.table}".encode())
    retry = await site.post()

    assert (refused.status, refused.code) == (503, "conflict_retry")
    assert refused.headers["retry-after"] == "1"
    assert left == ([], [])
    assert (retry.status, site.payments) == (201, [2])


@pytest.mark.parametrize("mode", [LEASED_SQLITE], ids=str)
async def test_h167_claimed_first_both_states_are_seen_by_others(
    open_site: OpenSite, effects: Effects
) -> None:
    site = await open_site()

    async with site.held():
        during = (effects.numbers, effects.claims)

    # The row was committed by `once.transaction()`, under the fence of a key that was still ours.
    assert during == ([1], [("k", 0)])
    assert effects.claims == [("k", SETTLED)]


@JOINED
async def test_h168_a_unique_constraint_of_the_applications_is_not_taken_for_ours(
    open_site: OpenSite, store: Store, effects: Effects
) -> None:
    site = await open_site()
    # The number that the handler is about to write.
    with Place(store.url, store.schema).connection() as connection:
        connection.execute(effects.insert(1))

    reply = await site.post()

    assert reply.status == 500
    assert effects.claims == []
    assert (await site.post()).status == 201


OUTSIDE = pytest.raises(OutsideTransactionWarning, match=r"once\.within\(\)")


def kinds(onefold: Onefold) -> list[str]:
    return sorted(job.kind for job in onefold.find())


class Refused(Exception):
    """What a handler raises."""


@pytest.mark.parametrize(
    ("mode", "is_async"), [(OURS_SQLITE, False), (OURS_POSTGRES, True)], ids=str
)
async def test_h170_h210_what_a_request_enqueues_within_is_committed_or_rolled_back_with_it(
    onefold: Onefold, *, is_async: bool
) -> None:
    fails = [True, False]

    def answer() -> str:
        if fails.pop(0):
            raise Refused
        return "paid"

    async def apay(once: Once) -> str:
        await once.within().aenqueue("mail")
        with OUTSIDE:
            await onefold.aenqueue("call")
        return answer()

    def pay(once: Once) -> str:
        once.within().enqueue("mail")
        with OUTSIDE:
            onefold.enqueue("call")
        return answer()

    app = keyed_app(onefold, apay if is_async else pay, transaction=onefold)
    with pytest.raises(Refused):
        await visited(app)
    assert kinds(onefold) == []

    talks = await visited(app)

    assert [talk.body for talk in talks] == [b'"paid"', b'"paid"']
    await onefold.aenqueue("call")
    assert kinds(onefold) == ["call", "mail"]


async def test_a_leased_route_has_a_transaction_in_its_block_alone(onefold: Onefold) -> None:
    async def pay(once: Once) -> str:
        await onefold.aenqueue("plain")
        with pytest.raises(UsageError, match="has a lease and no transaction"):
            once.within()
        async with once.atransaction():
            await once.within().aenqueue("mail")
            with pytest.raises(OutsideTransactionWarning):
                await onefold.aenqueue("call")
        return "paid"

    (talk, _) = await visited(keyed_app(onefold, pay, takeover="rerun"))

    assert (talk.status, kinds(onefold)) == (200, ["mail", "plain"])
