"""The server's calls about queues and pushed deliveries, for the subjects of the contract suite."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onefold.app import Tenant
    from onefold.model.delivery import Delivery, Ended
    from onefold.model.job import Job, Json
    from onefold.model.served_queue import HeldWhy, QueueConfiguration, ServedQueue


class PushSubject(ABC):
    """A tenant's calls under their own names, never in a caller's transaction."""

    @abstractmethod
    def carry_out(self, target: object, name: str, *args: Any, **options: Any) -> Any:
        """Call a method of Onefold itself: on its own pool."""

    @abstractmethod
    def _calls(self) -> Tenant:
        """The tenant's own calls."""

    def _own(self, name: str, *args: Any, **options: Any) -> Any:
        return self.carry_out(self._calls(), name, *args, **options)

    def save_served_queue(
        self, name: str, configuration: QueueConfiguration, *, paused: bool | None = None
    ) -> ServedQueue:
        """`Onefold.save_served_queue`."""
        saved: ServedQueue = self._own("save_served_queue", name, configuration, paused=paused)
        return saved

    def pause_served_queue(self, name: str) -> ServedQueue | None:
        """`Onefold.pause_served_queue`."""
        paused: ServedQueue | None = self._own("pause_served_queue", name)
        return paused

    def resume_served_queue(self, name: str) -> ServedQueue | None:
        """`Onefold.resume_served_queue`."""
        resumed: ServedQueue | None = self._own("resume_served_queue", name)
        return resumed

    def served_queue(self, name: str, *, counts: bool = False) -> ServedQueue | None:
        """`Onefold.served_queue`."""
        found: ServedQueue | None = self._own("served_queue", name, counts=counts)
        return found

    def served_queues(
        self, *, after: str | None = None, limit: int = 100, counts: bool = False
    ) -> list[ServedQueue]:
        """`Onefold.served_queues`."""
        found: list[ServedQueue] = self._own(
            "served_queues", after=after, limit=limit, counts=counts
        )
        return found

    def delete_served_queue(self, name: str, *, force: bool = False) -> bool:
        """`Onefold.delete_served_queue`."""
        deleted: bool = self._own("delete_served_queue", name, force=force)
        return deleted

    def acknowledge(self, job_id: str, *, fence: int | None = None, result: Json = None) -> Ended:
        """`Onefold.acknowledge`."""
        ended: Ended = self._own("acknowledge", job_id, fence=fence, result=result)
        return ended

    def nack(
        self,
        job_id: str,
        *,
        retryable: bool = True,
        reason: str | None = None,
        fence: int | None = None,
    ) -> Ended:
        """`Onefold.nack`."""
        ended: Ended = self._own("nack", job_id, retryable=retryable, reason=reason, fence=fence)
        return ended

    def defer_job(
        self,
        job_id: str,
        *,
        after: timedelta,
        reason: str | None = None,
        fence: int | None = None,
        hold_queue: bool = False,
    ) -> Ended:
        """`Onefold.defer_job`."""
        ended: Ended = self._own(
            "defer_job", job_id, after=after, reason=reason, fence=fence, hold_queue=hold_queue
        )
        return ended

    def heartbeat_job(
        self, job_id: str, *, lease: timedelta | None = None, fence: int | None = None
    ) -> Ended:
        """`Onefold.heartbeat_job`."""
        ended: Ended = self._own("heartbeat_job", job_id, lease=lease, fence=fence)
        return ended


class PushEngineCalls(ABC):
    """The engine's calls for a courier under their own names."""

    @abstractmethod
    def _call(self, name: str, *args: Any, **options: Any) -> Any:
        """Call a method of the engine in the subject's way."""

    def hold(
        self,
        queue: str,
        *,
        after: timedelta,
        why: HeldWhy = "backpressure",
        force: bool = False,
    ) -> None:
        """`Engine.hold`."""
        self._call("hold", queue, after=after, why=why, force=force)

    def open(
        self,
        queue: str,
        *,
        force: bool = False,
        by: Job | None = None,
        only: HeldWhy | None = None,
    ) -> bool:
        """`Engine.open`."""
        opened: bool = self._call("open", queue, force=force, by=by, only=only)
        return opened

    def stop(self, queue: str, *, endpoint: str, why: str) -> bool:
        """`Engine.stop`."""
        stopped: bool = self._call("stop", queue, endpoint=endpoint, why=why)
        return stopped

    def failed(self, queue: str) -> int:
        """`Engine.failed`."""
        failures: int = self._call("failed", queue)
        return failures

    def park(
        self,
        delivery: Job | Delivery,
        *,
        ack_timeout: timedelta = timedelta(minutes=5),
        dead: bool = False,
        exchange: str | None = None,
    ) -> Ended:
        """`Engine.park`."""
        ended: Ended = self._call(
            "park", delivery, ack_timeout=ack_timeout, dead=dead, exchange=exchange
        )
        return ended

    def next_ack_timeout(self) -> timedelta | None:
        """`Engine.next_ack_timeout`."""
        wait: timedelta | None = self._call("next_ack_timeout")
        return wait

    def pushed_queues(self) -> list[ServedQueue]:
        """`Engine.pushed_queues`."""
        found: list[ServedQueue] = self._call("pushed_queues")
        return found
