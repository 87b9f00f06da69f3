"""A server's events as an iterator, in both colours."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Final, TypeAlias

from onefold.client.errors import Unreachable
from onefold.client.flow import Pause
from onefold.client.flows.events import Heard, Open, Read, listen
from onefold.errors import UsageError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from onefold.client.async_driver import AsyncDriver, AsyncStream
    from onefold.client.connection import Connection
    from onefold.client.event import RemoteEvent
    from onefold.client.flow import Reply
    from onefold.client.flows.events import Ear
    from onefold.client.sync_driver import SyncDriver, SyncStream

    Opening: TypeAlias = asyncio.Task[tuple[Reply, AsyncStream | None]]

ENDED: Final = "These events have ended. Ask for new ones: events(after=…) goes on behind the last."


class _Events:
    """What the two colours share: what the flow asks for, and what it is told."""

    def __init__(self, connection: Connection, ear: Ear) -> None:
        self._ear = ear
        self._flow = listen(ear, connection.url, connection.patience)
        self._step: Open | Read | Pause | Heard | None = None
        self._rests_until = 0.0
        self._over = threading.Event()

    @property
    def last_id(self) -> str | None:
        """Behind which it would go on: give it as `after=` to another, later or elsewhere."""
        return self._ear.last

    def _asked(self) -> Open | Read | Pause | Heard:
        """What the flow asks for. It stays so until it is answered, whatever breaks in."""
        if self._step is None:
            self._answer(None)
        assert self._step is not None
        if isinstance(step := self._step, Heard):
            self._step = None
        return step

    def _answer(self, answer: Reply | bytes | None, failure: Unreachable | None = None) -> None:
        try:
            self._step = self._flow.send(answer) if failure is None else self._flow.throw(failure)
        except BaseException:
            self._over.set()
            raise
        if isinstance(self._step, Pause):
            # Counted from here: one who gives up waiting again and again comes to its end, too.
            self._rests_until = time.monotonic() + self._step.seconds

    @property
    def _rest(self) -> float:
        """Seconds that are left of a pause."""
        return max(self._rests_until - time.monotonic(), 0.0)


class RemoteEvents(_Events):
    """The events of a server from now on. Made by `Client.events`.

    `with` connects, and comes back when the server listens; without it, the first `next` connects.
    """

    def __init__(self, driver: SyncDriver, connection: Connection, ear: Ear) -> None:
        """Nothing is asked yet."""
        super().__init__(connection, ear)
        self._driver = driver
        self._stream: SyncStream | None = None
        self._going = threading.Lock()

    def __enter__(self) -> Self:
        """Connect, unless that has been done."""
        if self._stream is not None:
            return self
        try:
            self._go_on()
        except StopIteration:
            raise UsageError(ENDED) from None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Hang up."""
        self.close()

    def __iter__(self) -> Self:
        """The events, as they come."""
        return self

    def __next__(self) -> RemoteEvent:
        """The next one, however long that takes."""
        while (event := self._go_on()) is None:
            pass
        return event

    def close(self) -> None:
        """Hang up. From another thread, too: a `next` that waits is ended."""
        self._over.set()
        if (stream := self._stream) is not None:
            stream.end()
        if self._going.acquire(blocking=False):
            try:
                self._hang_up()
            finally:
                self._going.release()

    def _go_on(self) -> RemoteEvent | None:
        """Until something is heard; None is a greeting."""
        with self._going:
            try:
                while not self._over.is_set():
                    if isinstance(step := self._asked(), Heard):
                        return step.event
                    self._do(step)
            except BaseException:
                # What has come may be half read: whoever goes on connects again.
                self._hang_up()
                raise
            self._hang_up()
            raise StopIteration

    def _do(self, step: Open | Read | Pause) -> None:
        answer, failure = None, None
        try:
            answer = self._perform(step)
        except Unreachable as error:
            failure = error
        if not self._over.is_set():
            self._answer(answer, failure)

    def _perform(self, step: Open | Read | Pause) -> Reply | bytes | None:
        if isinstance(step, Pause):
            self._over.wait(self._rest)
            return None
        if isinstance(step, Read):
            return None if self._stream is None else self._stream.read()
        self._hang_up()
        reply, self._stream = self._driver.open(step.send, silence=step.silence)
        return reply

    def _hang_up(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()


class AsyncRemoteEvents(_Events):
    """`RemoteEvents`, awaited. Made by `AsyncClient.events`.

    An `anext` that is cancelled loses nothing: the next one goes on.
    """

    def __init__(self, driver: AsyncDriver, connection: Connection, ear: Ear) -> None:
        """Nothing is asked yet."""
        super().__init__(connection, ear)
        self._driver = driver
        self._stream: AsyncStream | None = None
        self._opening: Opening | None = None

    async def __aenter__(self) -> Self:
        """Connect, unless that has been done."""
        if self._stream is not None:
            return self
        try:
            await self._go_on()
        except StopAsyncIteration:
            raise UsageError(ENDED) from None
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Hang up."""
        await self.close()

    def __aiter__(self) -> Self:
        """The events, as they come."""
        return self

    async def __anext__(self) -> RemoteEvent:
        """The next one, however long that takes."""
        while (event := await self._go_on()) is None:
            pass
        return event

    async def close(self) -> None:
        """Hang up."""
        self._over.set()
        self._hang_up()

    async def _go_on(self) -> RemoteEvent | None:
        """Until something is heard; None is a greeting."""
        try:
            while not self._over.is_set():
                if isinstance(step := self._asked(), Heard):
                    return step.event
                await self._do(step)
        finally:
            if self._over.is_set():
                self._hang_up()
        raise StopAsyncIteration

    async def _do(self, step: Open | Read | Pause) -> None:
        answer, failure = None, None
        try:
            answer = await self._perform(step)
        except Unreachable as error:
            failure = error
        if not self._over.is_set():
            self._answer(answer, failure)

    async def _perform(self, step: Open | Read | Pause) -> Reply | bytes | None:
        if isinstance(step, Pause):
            if (rest := self._rest) > 0:
                await self._driver.pause(rest)
            return None
        if isinstance(step, Read):
            return None if self._stream is None else await self._stream.read()
        return await self._open(step)

    async def _open(self, step: Open) -> Reply | None:
        """Connect; None where it was closed meanwhile.

        In a task: one who gives up waiting finds it under way, or done, and not to be begun anew.
        """
        if (opening := self._opening) is None:
            self._hang_up()
            opening = self._opening = asyncio.create_task(self._connected(step))
            opening.add_done_callback(_notice)
        if not opening.done():
            await asyncio.wait((opening,))
        if self._opening is not opening:
            return None
        self._opening = None
        reply, self._stream = opening.result()
        return reply

    async def _connected(self, step: Open) -> tuple[Reply, AsyncStream | None]:
        reply, stream = await self._driver.open(step.send, silence=step.silence)
        if stream is not None:
            await stream.begin()
        return reply, stream

    def _hang_up(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
            opening.add_done_callback(_abandon)


def _notice(opening: Opening) -> None:
    """Take note of a failure, which may come when nobody is left to ask for it."""
    if not opening.cancelled():
        opening.exception()


def _abandon(opening: Opening) -> None:
    """Close what was opened when nobody wanted it any more."""
    if opening.cancelled() or opening.exception() is not None:
        return
    _, stream = opening.result()
    if stream is not None:
        stream.close()
