"""The calls about schedules, in both colours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onefold.client.flows import schedules
from onefold.client.job_calls import NOTHING

if TYPE_CHECKING:
    from typing import Unpack

    from onefold.client.async_driver import AsyncDriver
    from onefold.client.connection import Connection
    from onefold.client.schedule import RemoteSchedule, RemoteScheduleOptions
    from onefold.client.sync_driver import SyncDriver
    from onefold.model.job import Json


class ScheduleCalls:
    """Make, change, pause and remove schedules."""

    _connection: Connection
    _driver: SyncDriver

    def schedule(
        self,
        name: str,
        cron: str,
        *,
        kind: str,
        payload: Json = NOTHING,
        **options: Unpack[RemoteScheduleOptions],
    ) -> RemoteSchedule:
        """Enqueue a job at every tick of a cron expression; makes or changes the one of that name.

        Saying the same again changes nothing. Another expression, or zone, counts from now.
        """
        ask = self._connection.ask
        flow = schedules.save(ask, name, cron, kind=kind, payload=payload, options=options)
        return self._driver.run(flow)

    def schedules(self) -> list[RemoteSchedule]:
        """All there are, by name."""
        return self._driver.run(schedules.find(self._connection.ask))

    def unschedule(self, name: str) -> bool:
        """Remove a schedule; its jobs stay. False where there was none.

        Where the answer to a first try was lost, False may mean that this call removed it.
        """
        return self._driver.run(schedules.remove(self._connection.ask, name))

    def pause_schedule(self, name: str) -> bool:
        """Let a schedule rest. False where it did already."""
        return self._driver.run(schedules.say(self._connection.ask, name, "pause"))

    def resume_schedule(self, name: str) -> bool:
        """Let a schedule go on from now: what it slept through is not made up for.

        False where it was not paused.
        """
        return self._driver.run(schedules.say(self._connection.ask, name, "resume"))


class AsyncScheduleCalls:
    """`ScheduleCalls`, awaited."""

    _connection: Connection
    _driver: AsyncDriver

    async def schedule(
        self,
        name: str,
        cron: str,
        *,
        kind: str,
        payload: Json = NOTHING,
        **options: Unpack[RemoteScheduleOptions],
    ) -> RemoteSchedule:
        """Enqueue a job at every tick of a cron expression; makes or changes the one of that name.

        Saying the same again changes nothing. Another expression, or zone, counts from now.
        """
        ask = self._connection.ask
        flow = schedules.save(ask, name, cron, kind=kind, payload=payload, options=options)
        return await self._driver.run(flow)

    async def schedules(self) -> list[RemoteSchedule]:
        """All there are, by name."""
        return await self._driver.run(schedules.find(self._connection.ask))

    async def unschedule(self, name: str) -> bool:
        """Remove a schedule; its jobs stay. False where there was none.

        Where the answer to a first try was lost, False may mean that this call removed it.
        """
        return await self._driver.run(schedules.remove(self._connection.ask, name))

    async def pause_schedule(self, name: str) -> bool:
        """Let a schedule rest. False where it did already."""
        return await self._driver.run(schedules.say(self._connection.ask, name, "pause"))

    async def resume_schedule(self, name: str) -> bool:
        """Let a schedule go on from now: what it slept through is not made up for.

        False where it was not paused.
        """
        return await self._driver.run(schedules.say(self._connection.ask, name, "resume"))
