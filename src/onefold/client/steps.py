"""Steps of a job that a server delivered: each is done once per job, and its result is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import msgspec

from onefold.client.connection import Connection, decode
from onefold.client.requests import path, wire_body
from onefold.effects.step_log import StepLog
from onefold.effects.steps import RemoteStepOptions, StepRunner, check_step_options
from onefold.errors import InvalidInput
from onefold.model.claim import Holding
from onefold.model.json_text import encode_payload
from onefold.model.step import Failure, Notes, StepName, StepReply, StepRow
from onefold.operations.steps import StepWrite

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Self, Unpack

    from onefold.client.requests import ClientResponse
    from onefold.effects.step_store import StepRequest
    from onefold.effects.steps import StepOptions
    from onefold.runtime import Procedure, Runtime

P = ParamSpec("P")
R = TypeVar("R")


class HttpSteps:
    """The steps of a delivery of a server. It is a `StepBackend`."""

    generation: int = 0
    """The server knows the generation of the job."""
    compares: bool = False
    """The client has not read the step that an earlier try has stored."""

    def __init__(self, connection: Connection, job_id: str, fence: int) -> None:
        """`connection` is that of a client."""
        if type(fence) is not int or fence < 1:
            raise InvalidInput("fence", f"must be the number of the delivery, got {fence!r}")
        self.fence: int = fence
        self._connection = connection
        self._job_id = job_id
        self._third_party_keys: dict[str, str] = {}

    def read(self) -> Procedure[list[StepRow]]:
        """Nothing: the response to a begin has the result of an earlier attempt."""
        yield from ()
        return []

    def begin(
        self, request: StepRequest, owner: str, seen: StepRow | None, *, verified: bool
    ) -> Procedure[StepRow]:
        """Begin a step, or receive its result. A repeated request is recognised by `owner`."""
        del seen
        members = {"unsafe": request.is_unsafe or None, "verified": verified or None}
        reply = decode((yield from self._put(request, owner, "begin", **members)), StepReply)
        if reply.is_finished:
            value = encode_payload(reply.result)
            return self._row(
                request, owner, Holding.SETTLED, Notes(value=msgspec.Raw(value.encode()))
            )
        self._third_party_keys[request.name.text] = reply.idempotency_key or ""
        return self._row(request, owner, Holding.HELD, Notes(reply.attempts or 1))

    def finish(self, request: StepRequest, row: StepRow, value: str) -> Procedure[StepRow]:
        """Store the result of a step, which is JSON text."""
        raw = msgspec.Raw(value.encode())
        yield from self._put(request, row.owner, "finish", result=None if value == "null" else raw)
        notes = msgspec.structs.replace(row.notes, value=raw)
        return self._row(request, row.owner, Holding.SETTLED, notes)

    def fail(
        self, request: StepRequest, row: StepRow, failure: Failure, state: Holding
    ) -> Procedure[StepRow]:
        """Store a failure: free for another try, held with an unknown outcome, settled for good."""
        error: dict[str, Any] = msgspec.json.decode(failure.error)
        yield from self._put(
            request,
            row.owner,
            "fail",
            error={"type": error["type"], "message": error["message"]},
            final=state is Holding.SETTLED or None,
            unknown=state is Holding.HELD,
        )
        notes = msgspec.structs.replace(row.notes, failure=failure)
        return self._row(request, row.owner, state, notes)

    def third_party_key(self, name: StepName) -> str:
        """The key of a step for a third party: the same in each attempt."""
        return self._third_party_keys[name.text]

    def _put(
        self, request: StepRequest, owner: str, action: str, **members: Any
    ) -> Procedure[ClientResponse]:
        name = request.name
        body = {
            "action": action,
            "fence": self.fence,
            "key": name.key,
            "occurrence": name.occurrence if name.key is None else None,
            "attempt": owner,
            "fingerprint": request.fingerprint,
            **members,
        }
        place = path("jobs", self._job_id, "steps", name.name)
        return self._connection.put(place, wire_body(body))

    def _row(self, request: StepRequest, owner: str, state: Holding, notes: Notes) -> StepRow:
        wanted = StepWrite(
            request.name.text, owner, state, notes, request.takeover, request.fingerprint
        )
        return wanted.unstored(self.fence)


class _Steps(StepRunner):
    """The steps of one delivery."""

    def __init__(
        self, runtime: Runtime, log: StepLog, options: RemoteStepOptions | None = None
    ) -> None:
        self._runtime = runtime
        self._delivery_log = log
        self._options = cast("StepOptions", options or {})
        check_step_options(self._options, RemoteStepOptions.__optional_keys__)

    @property
    def _log(self) -> StepLog:
        return self._delivery_log

    def check(self) -> None:
        """The server rejects the steps of a delivery that has ended."""

    def using(self, **options: Unpack[RemoteStepOptions]) -> Self:
        """The same steps with other options: `steps.using(unsafe=True).step(…)`."""
        merged = cast("RemoteStepOptions", {**self._options, **options})
        return type(self)(self._runtime, self._delivery_log, merged)


class RemoteSteps(_Steps):
    """The steps of one delivery. Made by `Client.steps`."""

    def step(self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Do something once per job. Its result is stored, and a rerun receives it.

        The returned value is the stored one, read back from JSON. If the handler dies in the step,
        or the step raises, it is done again, unless it is `unsafe`.
        """
        result: R = self._runtime.run(self._step(name, function, args, kwargs, awaited=False))
        return result


class AsyncRemoteSteps(_Steps):
    """`RemoteSteps` with coroutines. Made by `AsyncClient.steps`."""

    async def step(
        self, name: str, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """`RemoteSteps.step` for a coroutine function."""
        result: R = await self._runtime.arun(self._step(name, function, args, kwargs, awaited=True))
        return result


def step_log(connection: Connection, job_id: str, fence: int) -> StepLog:
    """The steps of a delivery, of which this process has begun none."""
    return StepLog(HttpSteps(connection, job_id, fence), lambda: None)
