"""An operator's calls, in both colours: queues, keys, and why something was deduplicated."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.calls.claims import SURFACE, lock_key
from onefold.client.flows import keys, queues

if TYPE_CHECKING:
    from typing import Unpack

    from onefold.calls.keys import KeyFilters
    from onefold.client.async_driver import AsyncDriver
    from onefold.client.connection import Connection
    from onefold.client.queue import QueueOptions, RemoteQueue, RemoteQueues
    from onefold.client.sync_driver import SyncDriver
    from onefold.model.stored_key import KeyPage, Why

OVERLAP: Final = timedelta(hours=24)


class OperatorCalls:
    """What an API key with the scope `admin` may do."""

    _connection: Connection
    _driver: SyncDriver

    def save_queue(self, name: str, **options: Unpack[QueueOptions]) -> RemoteQueue:
        """Make a queue, or say anew what holds for it: what is left out is the default."""
        return self._driver.run(queues.save(self._connection.ask, name, options))

    def queue(self, name: str) -> RemoteQueue | None:
        """A queue and what is in it; None where there is none."""
        return self._driver.run(queues.look(self._connection.ask, name))

    def queues(self, *, limit: int = 100, after: str | None = None) -> RemoteQueues:
        """All queues, by name, a page at a time."""
        return self._driver.run(queues.find(self._connection.ask, limit=limit, after=after))

    def delete_queue(self, name: str, *, force: bool = False) -> bool:
        """Remove a queue; False where there was none. With jobs in it, only with `force`."""
        return self._driver.run(queues.delete(self._connection.ask, name, force=force))

    def pause(self, queue: str) -> None:
        """Give no more jobs of a queue to anybody. What is running goes on."""
        self._driver.run(queues.say(self._connection.ask, queue, "pause"))

    def resume(self, queue: str) -> None:
        """Let a paused queue go on."""
        self._driver.run(queues.say(self._connection.ask, queue, "resume"))

    def rotate_secret(
        self, queue: str, *, secret: str | None = None, overlap: timedelta = OVERLAP
    ) -> str:
        """Sign pushes with a new secret, which is the answer; the old one signs along a while."""
        return self._driver.run(queues.rotate(self._connection.ask, queue, secret, overlap))

    def keys(
        self, *, limit: int = 50, after: str | None = None, **filters: Unpack[KeyFilters]
    ) -> KeyPage:
        """Stored keys, by surface, scope and key, a page at a time; never what is stored."""
        return self._driver.run(keys.keys(self._connection.ask, filters, limit=limit, after=after))

    def why(
        self,
        key: str,
        *,
        surface: str | None = None,
        scope: str | None = None,
        fingerprint: str | None = None,
        payload: Any = msgspec.UNSET,
    ) -> Why:
        """Why was I deduplicated? Everybody who has this key, and whom each has kept away."""
        flow = keys.why(
            self._connection.ask,
            key,
            surface=surface,
            scope=scope,
            fingerprint=fingerprint,
            payload=payload,
        )
        return self._driver.run(flow)

    def force_settle(
        self,
        scope: str,
        key: str,
        result: Any = None,
        *,
        surface: str = SURFACE,
        step: str | None = None,
    ) -> bool:
        """An operator's word: this key is done, with this result. Its holder is fenced off."""
        ask = self._connection.ask
        flow = keys.force_settle(ask, scope, key, result, surface=surface, step=step)
        return self._driver.run(flow)

    def force_release(
        self, scope: str, key: str, *, surface: str = SURFACE, step: str | None = None
    ) -> bool:
        """An operator's word: this key is free. Its holder is fenced off."""
        flow = keys.force_release(self._connection.ask, scope, key, surface=surface, step=step)
        return self._driver.run(flow)

    def unlock(self, name: str) -> bool:
        """An operator's word: take a lock from its holder and fence it off."""
        return self.force_release("", lock_key(name), surface="lock")


class AsyncOperatorCalls:
    """`OperatorCalls`, awaited."""

    _connection: Connection
    _driver: AsyncDriver

    async def save_queue(self, name: str, **options: Unpack[QueueOptions]) -> RemoteQueue:
        """Make a queue, or say anew what holds for it: what is left out is the default."""
        return await self._driver.run(queues.save(self._connection.ask, name, options))

    async def queue(self, name: str) -> RemoteQueue | None:
        """A queue and what is in it; None where there is none."""
        return await self._driver.run(queues.look(self._connection.ask, name))

    async def queues(self, *, limit: int = 100, after: str | None = None) -> RemoteQueues:
        """All queues, by name, a page at a time."""
        return await self._driver.run(queues.find(self._connection.ask, limit=limit, after=after))

    async def delete_queue(self, name: str, *, force: bool = False) -> bool:
        """Remove a queue; False where there was none. With jobs in it, only with `force`."""
        return await self._driver.run(queues.delete(self._connection.ask, name, force=force))

    async def pause(self, queue: str) -> None:
        """Give no more jobs of a queue to anybody. What is running goes on."""
        await self._driver.run(queues.say(self._connection.ask, queue, "pause"))

    async def resume(self, queue: str) -> None:
        """Let a paused queue go on."""
        await self._driver.run(queues.say(self._connection.ask, queue, "resume"))

    async def rotate_secret(
        self, queue: str, *, secret: str | None = None, overlap: timedelta = OVERLAP
    ) -> str:
        """Sign pushes with a new secret, which is the answer; the old one signs along a while."""
        return await self._driver.run(queues.rotate(self._connection.ask, queue, secret, overlap))

    async def keys(
        self, *, limit: int = 50, after: str | None = None, **filters: Unpack[KeyFilters]
    ) -> KeyPage:
        """Stored keys, by surface, scope and key, a page at a time; never what is stored."""
        flow = keys.keys(self._connection.ask, filters, limit=limit, after=after)
        return await self._driver.run(flow)

    async def why(
        self,
        key: str,
        *,
        surface: str | None = None,
        scope: str | None = None,
        fingerprint: str | None = None,
        payload: Any = msgspec.UNSET,
    ) -> Why:
        """Why was I deduplicated? Everybody who has this key, and whom each has kept away."""
        flow = keys.why(
            self._connection.ask,
            key,
            surface=surface,
            scope=scope,
            fingerprint=fingerprint,
            payload=payload,
        )
        return await self._driver.run(flow)

    async def force_settle(
        self,
        scope: str,
        key: str,
        result: Any = None,
        *,
        surface: str = SURFACE,
        step: str | None = None,
    ) -> bool:
        """An operator's word: this key is done, with this result. Its holder is fenced off."""
        ask = self._connection.ask
        flow = keys.force_settle(ask, scope, key, result, surface=surface, step=step)
        return await self._driver.run(flow)

    async def force_release(
        self, scope: str, key: str, *, surface: str = SURFACE, step: str | None = None
    ) -> bool:
        """An operator's word: this key is free. Its holder is fenced off."""
        flow = keys.force_release(self._connection.ask, scope, key, surface=surface, step=step)
        return await self._driver.run(flow)

    async def unlock(self, name: str) -> bool:
        """An operator's word: take a lock from its holder and fence it off."""
        return await self.force_release("", lock_key(name), surface="lock")
