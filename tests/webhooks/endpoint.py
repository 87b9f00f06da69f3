"""An endpoint under test: a receiver whose handler writes a row for each event."""

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from onefold import Onefold
from onefold.web.http import HttpRequest, HttpResponse
from onefold.web.webhooks import Provider, Received, StandardWebhooks, Webhook
from tests.fixtures.colours import Clock, Colour, Coloured, Store
from tests.fixtures.connections import Effects
from tests.webhooks import senders

if TYPE_CHECKING:
    from collections.abc import Callable

    from onefold.events import Event


class Endpoint:
    """A receiver, what it did, and what was told of it."""

    def __init__(self, onefold: Onefold, colour: Colour, clock: Clock, effects: Effects) -> None:
        self.onefold = onefold
        self.colour: Colour = colour
        self.clock = clock
        self.effects = effects
        self.told: list[Event] = []
        self.seen: list[Received] = []
        self.after: Callable[[Received], Any] = lambda _: None
        """Called by the handler once it has written; what it gives is the handler's answer."""
        onefold.subscribe(self.told.append)
        self.webhook = self.made(StandardWebhooks(senders.WHSEC))

    def made(self, provider: Provider, *, name: str = "orders", **options: Any) -> Webhook:
        """A receiver whose handler writes the number of its event."""
        webhook = Webhook(self.onefold, provider, name=name, **options)
        if "enqueue" not in options:
            webhook.process(self.ahandle if self.colour == "async" else self.handle)
        self.webhook = webhook
        return webhook

    def handle(self, event: Received) -> Any:
        self.seen.append(event)
        event.connection.execute(self.effects.insert(self._number(event)))
        return self.after(event)

    async def ahandle(self, event: Received) -> Any:
        self.seen.append(event)
        await event.connection.execute(self.effects.insert(self._number(event)))
        return self.after(event)

    def _number(self, event: Received) -> int:
        return len(self.effects.numbers) + 1

    async def receive(
        self, request: HttpRequest, body: bytes = b"{}", webhook: Webhook | None = None
    ) -> HttpResponse:
        receiver = self.webhook if webhook is None else webhook
        if self.colour == "async":
            return await receiver.areceive(request, body)
        return receiver.receive(request, body)

    async def send(self, event_id: str = "msg_1", **members: Any) -> HttpResponse:
        """Send an event by Standard Webhooks."""
        body = json.dumps(members).encode()
        return await self.receive(senders.standard(body, self.clock.now, event_id=event_id), body)

    @property
    def count(self) -> int:
        """How many effects there are."""
        return len(self.effects.numbers)

    def told_of(self, kind: type) -> list[Any]:
        return [event for event in self.told if isinstance(event, kind)]

    def advance(self, **span: float) -> None:
        self.clock.advance(timedelta(**span))


@pytest.fixture
def endpoint(onefold: Coloured, clock: Clock, effects: Effects, store: Store) -> Endpoint:
    return Endpoint(onefold.target, onefold.colour, clock, effects)
