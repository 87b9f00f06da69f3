"""Declared jobs: functions that can be enqueued, and whoever knows them by their kinds."""

from __future__ import annotations

from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, runtime_checkable

from onefold.calls.jobs import CallOptions, EnqueueOptions, JobCalls
from onefold.errors import ConflictingOptions, InvalidInput, UsageError
from onefold.model import checks
from onefold.model.job import NewJob
from onefold.model.job_result import reading
from onefold.model.new_job import prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import timedelta
    from typing import Unpack

    from onefold.calls.procedure import Conductor
    from onefold.declaration import Declaration, Isolation
    from onefold.effects.run import Run
    from onefold.model.job import Enqueued, EnqueuedMany, Job, Json
    from onefold.model.outcome import Outcome

P = ParamSpec("P")
Q = ParamSpec("Q")
R_co = TypeVar("R_co", covariant=True)
C_co = TypeVar("C_co", covariant=True)


@runtime_checkable
class Lends(Protocol):
    """Whoever can work on a caller's connection."""

    def within(self, connection: object) -> JobCalls:
        """The same calls, in the caller's transaction."""
        ...


@runtime_checkable
class HasTenants(Protocol):
    """Whoever can work for one owner of keys."""

    def tenant(self, name: str) -> JobCalls:
        """The same calls for one owner."""
        ...


class Call(Generic[P, R_co]):
    """One call of a declared job, to be enqueued together with others."""

    def __init__(self, declaration: Declaration, payload: Json, options: EnqueueOptions) -> None:
        """Made by `job.call(…)`."""
        self.declaration: Declaration = declaration
        self.payload: Json = payload
        self.options: EnqueueOptions = options

    def new_job(self) -> NewJob:
        """As a value for `onefold.enqueue_many`, beside jobs of other kinds."""
        return self.with_options({})

    def with_options(self, shared: EnqueueOptions) -> NewJob:
        """The same, with options that are shared by several calls; the call's own win."""
        for name in CallOptions.__optional_keys__:
            if name in self.options:
                raise ConflictingOptions(
                    name,
                    "is said once for all items: job.using(…).enqueue_many(…), or an argument of"
                    " onefold.enqueue_many",
                )
        said: EnqueueOptions = {**shared, **self.options}
        options = self.declaration.options(self.payload, said)
        return NewJob(self.declaration.kind, self.payload, **options)

    def __repr__(self) -> str:
        """The kind; the payload may be large, or nobody's business."""
        return f"Call({self.declaration.kind!r})"


class Enqueuer(Generic[P, R_co]):
    """Enqueues a declared job: with certain options, in a transaction, or for a tenant."""

    def __init__(
        self,
        declaration: Declaration,
        calls: JobCalls,
        now: Callable[[], int],
        options: EnqueueOptions | None = None,
    ) -> None:
        """Made by `@onefold.job`, and by `using`, `within` and `tenant`."""
        self._declaration = declaration
        self._calls = calls
        self._now = now
        self._options: EnqueueOptions = {} if options is None else options

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued[R_co]:
        """Store a job that calls the function with these arguments, or find the one that will.

        Arguments that do not fit are an `InvalidInput`, before anything is stored.
        """
        kind, payload, options = self._request(args, kwargs)
        answer = self._calls.enqueue(kind, payload, **options)
        return reading(answer, self._declaration.read_result)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued[R_co]:
        """`enqueue`, awaited."""
        kind, payload, options = self._request(args, kwargs)
        answer = await self._calls.aenqueue(kind, payload, **options)
        return reading(answer, self._declaration.read_result)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[P, R_co]:
        """One call for `enqueue_many`. Options that were given by `using` go with it."""
        payload = self._declaration.arguments.to_payload(args, kwargs)
        return Call(self._declaration, payload, self._options)

    def enqueue_many(self, calls: Iterable[Call[P, R_co]]) -> EnqueuedMany[R_co]:
        """Store many, all or nothing, and answer for each, in order.

        send_email.enqueue_many([send_email.call(1, "welcome"), send_email.call(2, "welcome")])
        """
        new_jobs, options = self._requests(calls)
        answers = self._calls.enqueue_many(new_jobs, **options)
        return reading(answers, self._declaration.read_result)

    async def aenqueue_many(self, calls: Iterable[Call[P, R_co]]) -> EnqueuedMany[R_co]:
        """`enqueue_many`, awaited."""
        new_jobs, options = self._requests(calls)
        answers = await self._calls.aenqueue_many(new_jobs, **options)
        return reading(answers, self._declaration.read_result)

    def unique_key(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """The unique key that such a job has, defaults of the signature applied."""
        kind, payload, options = self._request(args, kwargs)
        rest = {
            name: options[name] for name in options if name not in CallOptions.__optional_keys__
        }
        key = prepare(NewJob(kind, payload, **rest), "", now=self._now()).request.unique_key
        if key is None:
            raise UsageError(f"{kind} has no unique key: declare it with unique=Unique(…).")
        return key

    def using(self, **options: Unpack[EnqueueOptions]) -> Enqueuer[P, R_co]:
        """The same with options of an enqueue, which win over what is declared.

        `using(unique_key=None)` switches a declared key off.
        """
        checks.options(options, EnqueueOptions.__optional_keys__)
        merged: EnqueueOptions = {**self._options, **options}
        return Enqueuer(self._declaration, self._calls, self._now, merged)

    def within(self, connection: object) -> Enqueuer[P, R_co]:
        """The same on your connection and inside your transaction; you commit."""
        if not isinstance(self._calls, Lends):
            raise UsageError("This is within a connection already.")
        calls = self._calls.within(connection)
        return Enqueuer(self._declaration, calls, self._now, self._options)

    def tenant(self, name: str) -> Enqueuer[P, R_co]:
        """The same for one owner of keys."""
        if not isinstance(self._calls, HasTenants):
            raise UsageError("This is for a tenant already, or within: job.tenant(…).within(…).")
        return Enqueuer(self._declaration, self._calls.tenant(name), self._now, self._options)

    def _request(self, args: Any, kwargs: Any) -> tuple[str, Json, dict[str, Any]]:
        declaration = self._declaration
        payload = declaration.arguments.to_payload(args, kwargs)
        return declaration.kind, payload, declaration.options(payload, self._options)

    def _requests(self, calls: Iterable[Call[P, R_co]]) -> tuple[list[NewJob], CallOptions]:
        said: Any = dict(self._options)
        shared: Any = {
            name: said.pop(name) for name in CallOptions.__optional_keys__ if name in said
        }
        new_jobs: list[NewJob] = []
        kind = self._declaration.kind
        for item, call in enumerate(checks.listed(calls, "calls", f"{kind}.call(…)")):
            if not isinstance(call, Call) or call.declaration is not self._declaration:
                raise InvalidInput("calls", f"must hold {kind}.call(…), got {call!r}", item=item)
            try:
                new_jobs.append(call.with_options(said))
            except InvalidInput as error:
                raise error.at(item) from None
        return new_jobs, shared


class DeclaredJob(Enqueuer[P, R_co]):
    """A function that is a job as well."""

    __name__: str
    __qualname__: str

    def __init__(self, declaration: Declaration, calls: JobCalls, now: Callable[[], int]) -> None:
        """Made by `@onefold.job`."""
        super().__init__(declaration, calls, now)
        self.kind: str = declaration.kind
        self.function: Callable[..., Any] = declaration.function
        self.is_async: bool = declaration.is_async
        self.isolation: Isolation = declaration.isolation
        self.timeout: timedelta | None = declaration.timeout
        self.on_dead: Callable[[Job], Any] | None = declaration.on_dead
        self.stores_result: bool = declaration.stores_result
        self.wants_run: bool = declaration.arguments.run is not None
        self.conductor: Conductor = calls._conductor  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        self.declaration: Declaration = declaration
        wrapper: Any = self
        update_wrapper(wrapper, declaration.function)

    def bind(self, job: Job, run: Run | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the function is called with; `InvalidInput` where the payload does not fit."""
        return self.declaration.arguments.from_payload(job.payload, run)

    def forgives(self, error: BaseException) -> bool:
        """True where `done_on` says that the work has been done."""
        return self.declaration.rules.forgives(error)

    def outcome_of(self, error: BaseException) -> Outcome | None:
        """What `retry_on` and `bury_on` say; None leaves it to the attempts that remain."""
        return self.declaration.rules.outcome_of(error)

    def to_json(self, value: Any) -> Json:
        """What the function returned, as it is stored."""
        return self.declaration.to_json(value)

    def __reduce__(self) -> str:
        """By its name, as functions are pickled."""
        return self.function.__qualname__

    def __repr__(self) -> str:
        """The kind, and where the function is."""
        return f"<job {self.kind!r}: {self.declaration.place}>"


class JobFunction(DeclaredJob[P, R_co], Generic[P, R_co, Q, C_co]):
    """A declared job that is called like the function it was made of."""

    def __call__(self, *args: Q.args, **kwargs: Q.kwargs) -> C_co:
        """Run the function here and now, without any queue."""
        answer: C_co = self.function(*args, **kwargs)
        return answer


class Registry:
    """The declared jobs of an Onefold, by kind: what its workers can run."""

    def __init__(self) -> None:
        """None yet."""
        self._jobs: dict[str, DeclaredJob[..., Any]] = {}

    @property
    def kinds(self) -> tuple[str, ...]:
        """What is declared, in order of declaration."""
        return tuple(self._jobs)

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues of declared jobs, in order of declaration."""
        return tuple(dict.fromkeys(job.declaration.queue for job in self._jobs.values()))

    def get(self, kind: str) -> DeclaredJob[..., Any] | None:
        """The job of this kind, if it is declared here."""
        return self._jobs.get(kind)

    def add(self, job: DeclaredJob[..., Any]) -> None:
        """A kind has one function."""
        known = self._jobs.get(job.kind)
        if known is not None and known.declaration.is_another(job.declaration):
            raise InvalidInput(
                "kind",
                f"{job.kind!r} is declared twice, by {known.declaration.place} and by"
                f" {job.declaration.place}. Give one of them another kind=.",
            )
        self._jobs[job.kind] = job
