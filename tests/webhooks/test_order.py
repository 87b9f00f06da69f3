"""Order: what is older than the last applied is not applied."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from onefold import InvalidInput
from onefold.web.webhooks import Received, StandardWebhooks, Webhook
from tests.fixtures.connections import alongside
from tests.webhooks import senders
from tests.webhooks.endpoint import Endpoint
from tests.webhooks.senders import WHSEC


class Ordered:
    """An endpoint whose handler applies an event if it is the newest about its object."""

    def __init__(self, endpoint: Endpoint, **options: Any) -> None:
        self.endpoint = endpoint
        self.applied: list[str] = []
        self.options = options
        self.fails = False
        self.webhook = Webhook(endpoint.onefold, StandardWebhooks(WHSEC), name="ordered")
        self.webhook.process(self.ahandle if endpoint.colour == "async" else self.handle)
        self._sent = 0

    def handle(self, event: Received) -> None:
        if event.is_newest("customer:7", **self.options):
            self._apply(event)

    async def ahandle(self, event: Received) -> None:
        if await event.ais_newest("customer:7", **self.options):
            self._apply(event)

    def _apply(self, event: Received) -> None:
        if self.fails:
            raise RuntimeError
        self.applied.append(event.json()["timestamp"])

    async def send(self, second: float) -> int:
        self._sent += 1
        at = self.endpoint.clock.now + timedelta(seconds=second)
        body = b'{"timestamp": "%s"}' % at.isoformat().encode()
        asked = senders.standard(body, self.endpoint.clock.now, event_id=f"msg_{self._sent}")
        return (await self.endpoint.receive(asked, body, self.webhook)).status

    @property
    def seconds(self) -> list[float]:
        start = self.endpoint.clock.now
        return [(datetime.fromisoformat(at) - start).total_seconds() for at in self.applied]


async def test_w049_what_is_older_than_the_last_applied_is_not_applied(
    endpoint: Endpoint,
) -> None:
    ordered = Ordered(endpoint)
    for second in (3.0, 1.0, 2.0, 5.0, 4.0, -9.0, 6.0):
        assert await ordered.send(second) == 200

    assert ordered.seconds == [3, 5, 6]


@pytest.mark.parametrize(("ties", "applied"), [("apply", [1, 1, 1]), ("ignore", [1])])
async def test_w049_what_of_the_same_time_is_said(
    endpoint: Endpoint, ties: str, applied: list[float]
) -> None:
    ordered = Ordered(endpoint, ties=ties)
    for _ in range(3):
        await ordered.send(1.0)

    assert ordered.seconds == applied


async def test_w049_what_was_undone_was_not_applied(endpoint: Endpoint) -> None:
    ordered = Ordered(endpoint)
    await ordered.send(1.0)
    ordered.fails = True
    assert await ordered.send(5.0) == 500
    ordered.fails = False
    await ordered.send(3.0)

    assert ordered.seconds == [1, 3]


async def test_w049_of_many_at_once_the_newest_is_the_last_applied(endpoint: Endpoint) -> None:
    ordered = Ordered(endpoint)
    await ordered.send(0.0)

    def sending(second: int) -> Any:
        return alongside(endpoint.colour, lambda: ordered.send(float(second)))

    statuses = await asyncio.gather(*map(sending, (4, 2, 6, 1, 5, 3)))
    while 6.0 not in ordered.seconds:  # a 409 is sent again
        await ordered.send(6.0)

    assert set(statuses) <= {200, 409}
    assert ordered.seconds[-1] == 6
    assert ordered.seconds == sorted(ordered.seconds)


async def test_w049_an_event_without_a_time_needs_one(endpoint: Endpoint) -> None:
    errors: list[InvalidInput] = []

    def look(event: Received) -> None:
        wrong: list[dict[str, Any]] = [{}, {"at": endpoint.clock.now, "ties": "flip"}]
        for options in wrong:
            with pytest.raises(InvalidInput) as caught:
                event.is_newest("x", **options)
            errors.append(caught.value)

    endpoint.after = look
    await endpoint.send("msg_1")

    assert [error.field for error in errors] == ["at", "ties"]


def test_w049_a_time_that_the_application_finds_has_a_zone(endpoint: Endpoint) -> None:
    webhook = Webhook(
        endpoint.onefold,
        StandardWebhooks(WHSEC),
        name="dated",
        occurred_at=lambda _: datetime(2026, 1, 1),  # noqa: DTZ001 - that is the mistake
    )

    with pytest.raises(InvalidInput, match="occurred_at"):
        webhook.verify(senders.standard(b"{}", endpoint.clock.now), b"{}")
