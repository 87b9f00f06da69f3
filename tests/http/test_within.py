"""`once.within()`, and the warning about an enqueue that is not part of a request's transaction."""

from typing import Any

import flask
import pytest

from onefold import Onefold, OutsideTransactionWarning, UsageError
from onefold.web import flask as on_flask
from onefold.web.fastapi import Once
from tests.http.apps import anybody, bare_fastapi
from tests.http.apps_talk import Talk, part
from tests.http.scenario_modes import OURS_POSTGRES, OURS_SQLITE

BOTH = pytest.mark.parametrize("mode", [OURS_SQLITE, OURS_POSTGRES], ids=str)


def kinds(onefold: Onefold) -> list[str]:
    return [job.kind for job in onefold.find()]


class Refused(Exception):
    """What a handler raises."""


@BOTH
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
async def test_what_a_request_enqueues_within_is_committed_or_rolled_back_with_it(
    onefold: Onefold, *, is_async: bool
) -> None:
    app, idempotency = bare_fastapi(onefold)
    fails = [True, False]

    def answer() -> str:
        if fails.pop(0):
            raise Refused
        return "paid"

    if is_async:

        @app.post("/pay")
        @idempotency(principal=anybody, transaction=onefold)
        async def apay(once: Once) -> str:
            await once.within().aenqueue("mail")
            return answer()

    else:

        @app.post("/pay")
        @idempotency(principal=anybody, transaction=onefold)
        def pay(once: Once) -> str:
            once.within().enqueue("mail")
            return answer()

    with pytest.raises(Refused):
        await Talk(app, part()).run()
    assert kinds(onefold) == []
    for _ in range(2):
        talk = Talk(app, part())
        await talk.run()
        assert talk.body == b'"paid"'
    assert kinds(onefold) == ["mail"]


@BOTH
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
async def test_a_plain_enqueue_in_a_joined_route_is_warned_of(
    onefold: Onefold, *, is_async: bool
) -> None:
    app, idempotency = bare_fastapi(onefold)
    told: list[str] = []

    if is_async:

        @app.post("/pay")
        @idempotency(principal=anybody, transaction=onefold)
        async def apay() -> str:
            with pytest.raises(OutsideTransactionWarning, match=r"once\.within\(\)") as raised:
                await onefold.aenqueue("mail")
            told.append(str(raised.value))
            return "paid"

    else:

        @app.post("/pay")
        @idempotency(principal=anybody, transaction=onefold)
        def pay() -> str:
            with pytest.raises(OutsideTransactionWarning, match=r"once\.within\(\)") as raised:
                onefold.enqueue("mail")
            told.append(str(raised.value))
            return "paid"

    talk = Talk(app, part())
    await talk.run()

    assert (talk.status, len(told)) == (200, 1)
    await onefold.aenqueue("call")
    assert kinds(onefold) == ["call"]


async def test_a_leased_route_has_a_transaction_in_its_block_alone(onefold: Onefold) -> None:
    app, idempotency = bare_fastapi(onefold)

    @app.post("/pay")
    @idempotency(principal=anybody, takeover="rerun")
    async def pay(once: Once) -> str:
        await onefold.aenqueue("plain")
        with pytest.raises(UsageError, match="has a lease and no transaction"):
            once.within()
        async with once.atransaction():
            await once.within().aenqueue("mail")
            with pytest.raises(OutsideTransactionWarning):
                await onefold.aenqueue("call")
        return "paid"

    talk = Talk(app, part())
    await talk.run()

    assert (talk.status, sorted(kinds(onefold))) == (200, ["mail", "plain"])


def test_flask_has_the_same(onefold: Onefold) -> None:
    app = flask.Flask("shop")
    idempotency = on_flask.Idempotency(onefold)
    idempotency.init_app(app)

    @app.post("/pay")
    @idempotency(principal=anybody, transaction=onefold)
    def pay(once: on_flask.Once) -> Any:
        once.within().enqueue("mail")
        with pytest.raises(OutsideTransactionWarning):
            onefold.enqueue("call")
        return "paid"

    answer = app.test_client().post("/pay", headers={"Idempotency-Key": "k"})

    assert (answer.data, kinds(onefold)) == (b"paid", ["mail"])
    onefold.enqueue("call")
