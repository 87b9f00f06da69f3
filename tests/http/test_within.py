"""`once.within()`, and the warning about an enqueue that is not part of a request's transaction."""

import pytest

from onefold import Onefold, OutsideTransactionWarning, UsageError
from onefold.web.fastapi import Once
from tests.http.apps import keyed_app
from tests.http.apps_talk import visited
from tests.http.scenario_modes import OURS_POSTGRES, OURS_SQLITE

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
