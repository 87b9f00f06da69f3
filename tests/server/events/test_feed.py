"""The feed: who is told what, in bounds."""

import asyncio
import threading

from onefold.events import JobsEnqueued, LeasesExpired
from onefold.hooks import Hooks
from onefold.server.events import EventMessage, Feed, Subscription


def everything(message: EventMessage) -> bool:
    del message
    return True


def enqueued(number: int = 1, tenant: str = "acme") -> JobsEnqueued:
    return JobsEnqueued("email", f"{{{tenant}}}mail", number, tenant)


def listening(feed: Feed, tenant: str = "acme", after: str | None = None) -> Subscription:
    return feed.listen(tenant, after=after, wants=everything)


async def taken(subscription: Subscription) -> list[EventMessage]:
    """What waits; no more than a moment is given to anything else."""
    return await subscription.take(0.01)


async def test_a_listener_is_told_of_its_own_tenant_and_of_nobody_else() -> None:
    hooks = Hooks()
    feed = Feed(hooks)
    subscription = listening(feed)

    hooks.tell(enqueued(1, "other"))
    hooks.tell(enqueued(2))
    hooks.tell(LeasesExpired(3))

    (message,) = await taken(subscription)
    assert (message.name, message.queue) == ("jobs.enqueued", "mail")
    assert b'"count":2' in message.data


async def test_nothing_is_built_while_nobody_listens() -> None:
    hooks = Hooks()
    feed = Feed(hooks, linger=0)
    before = bool(hooks.listeners)

    subscription = listening(feed)
    assert (before, bool(hooks.listeners)) == (False, True)

    feed.leave("acme", subscription)
    while bool(hooks.listeners):  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0)


async def test_another_tenant_s_place_is_not_known_here() -> None:
    hooks = Hooks()
    feed = Feed(hooks)
    acme, other = listening(feed), listening(feed, "other")
    hooks.tell(enqueued(1))
    hooks.tell(enqueued(1, "other"))
    (seen,) = await taken(acme)

    stranger = listening(feed, "other", after=seen.id)

    assert stranger.missed == seen.id
    assert len(await taken(other)) == 1


async def test_events_of_other_threads_are_told_in_the_loop() -> None:
    hooks = Hooks()
    feed = Feed(hooks)
    subscription = listening(feed)

    thread = threading.Thread(target=lambda: hooks.tell(enqueued(7)))
    thread.start()
    (message,) = await subscription.take(10)
    thread.join()

    assert b'"count":7' in message.data


async def test_what_is_not_remembered_is_owned_up_to() -> None:
    hooks = Hooks()
    feed = Feed(hooks, remembered=2)
    first = listening(feed)
    hooks.tell(enqueued(1))
    (seen,) = await taken(first)
    for number in range(3):
        hooks.tell(enqueued(number))

    endless = seen.id + "0" * 10_000
    for unknown in (seen.id, "0123-1", "nonsense", seen.id.replace("-1", "-99"), "", endless):
        late = listening(feed, after=unknown)
        assert late.missed == unknown
        assert await taken(late) == []
