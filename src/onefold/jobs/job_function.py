"""`JobFunction`: a function that can be enqueued; its declaration; the registry of kinds."""

from __future__ import annotations

import inspect
from functools import update_wrapper
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Literal,
    ParamSpec,
    TypeAlias,
    TypedDict,
    TypeVar,
)

import msgspec

from onefold.errors import ConflictingOptions, InvalidInput, UsageError
from onefold.jobs.arguments import Arguments, Result
from onefold.jobs.defaults import JobDefaults
from onefold.jobs.enqueue_options import CallOptions, EnqueueOptions
from onefold.model import checks
from onefold.model.job import DEFAULT_QUEUE, NewJob, set_read
from onefold.model.limit import group_key
from onefold.model.new_job import prepare
from onefold.model.outcome import ErrorRule, ErrorRules, error_rules
from onefold.model.unique import Unique, field_at, field_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import timedelta
    from typing import Unpack

    from onefold.app.context import Context
    from onefold.app.jobs import JobCalls
    from onefold.effects.run import Run
    from onefold.model.job import Enqueued, EnqueuedMany, Job, JobRow, Json, KeyRule, UniqueWhile
    from onefold.model.lifecycle import Retention
    from onefold.model.retry import Backoff

Isolation: TypeAlias = Literal["thread", "process"]
Extra: TypeAlias = Literal["forbid", "ignore"]

UNIQUE_OPTIONS: Final = frozenset({"unique", "unique_while", "unique_for", "across_kinds"})
SHARED_OPTIONS: Final = UNIQUE_OPTIONS | {"queue", "priority", "max_attempts", "tags"}
"""The declared options that go unchanged to every enqueue."""


P = ParamSpec("P")
Q = ParamSpec("Q")
R_co = TypeVar("R_co", covariant=True)
C_co = TypeVar("C_co", covariant=True)


class DeclareOptions(TypedDict, total=False):
    """The options of `@onefold.job(…)`."""

    kind: str | None
    """By default the name of the function."""
    queue: str
    priority: int
    max_attempts: int
    unique: KeyRule | None
    unique_while: UniqueWhile | None
    unique_for: timedelta | None
    across_kinds: bool
    backoff: Backoff | None
    retention: Retention | None
    timeout: timedelta | None
    tags: Sequence[str]
    group: str | None
    """The argument, or the dotted path into one, that holds the group of a job."""
    store_result: bool
    isolation: Isolation
    """Where a plain function runs: in a thread, or in a process that can be killed."""
    extra: Extra
    """Members of a payload that are not arguments: rejected ("forbid"), or dropped ("ignore")."""
    retry_on: ErrorRule | Sequence[ErrorRule]
    bury_on: ErrorRule | Sequence[ErrorRule]
    done_on: ErrorRule | Sequence[ErrorRule]
    on_dead: Callable[[Job], Any] | None
    """Called when a job of this kind is buried; plain, or a coroutine function."""


class Declaration:
    """A function, the conversion of its arguments, and the options of every enqueue."""

    def __init__(self, function: Callable[..., Any], options: DeclareOptions) -> None:
        checks.options(options, DeclareOptions.__optional_keys__)
        self.function: Callable[..., Any] = _function(function)
        self.is_async: bool = inspect.iscoroutinefunction(function)
        self.kind: str = _kind(function, options.get("kind"))
        self.isolation: Isolation = _isolation(function, options, is_async=self.is_async)
        self.timeout: timedelta | None = options.get("timeout")
        self.on_dead: Callable[[Job], Any] | None = options.get("on_dead")
        if self.on_dead is not None and not callable(self.on_dead):
            raise InvalidInput("on_dead", f"must be a function of a job, got {self.on_dead!r}")
        self.stores_result: bool = checks.flag(options.get("store_result", False), "store_result")
        self.rules: ErrorRules = error_rules(
            *(options.get(name, ()) for name in ("retry_on", "bury_on", "done_on"))
        )
        self.defaults: JobDefaults = JobDefaults(
            options.get("backoff"), options.get("retention"), self.timeout
        )
        self.arguments: Arguments = Arguments(
            function, function.__name__, ignores_extra=_ignores_extra(options)
        )
        self.returned: Result = Result(function, function.__name__, stored=self.stores_result)
        self._shared: dict[str, Any] = {
            name: value for name, value in options.items() if name in SHARED_OPTIONS
        }
        self._group = None if (group := options.get("group")) is None else self._path(group)
        self._check_shared()

    @property
    def place(self) -> str:
        """Where the function is, for error messages."""
        code = inspect.unwrap(self.function).__code__
        return (
            f"{self.function.__module__}.{self.function.__qualname__} (line {code.co_firstlineno})"
        )

    @property
    def queue(self) -> str:
        """The queue of its jobs, unless an enqueue names another."""
        queue: str = self._shared.get("queue", DEFAULT_QUEUE)
        return queue

    def is_another(self, other: Declaration) -> bool:
        """False if the other is the same function, defined again: a reload, or a notebook cell."""
        ours, theirs = self.function, other.function
        if (ours.__module__, ours.__qualname__) != (theirs.__module__, theirs.__qualname__):
            return True
        one, two = inspect.unwrap(ours).__code__, inspect.unwrap(theirs).__code__
        same_file: bool = one.co_filename == two.co_filename
        same_line: bool = one.co_firstlineno == two.co_firstlineno
        return same_file and not same_line

    def options(self, payload: Json, given: EnqueueOptions) -> dict[str, Any]:
        """The options of an enqueue: the declared ones, and those of this call."""
        shared = self._shared
        if "unique_key" in given and given["unique_key"] is None:
            # The call switches the key off, with the declared options of the key.
            shared = {name: shared[name] for name in shared if name not in UNIQUE_OPTIONS}
        options: dict[str, Any] = {**shared, **given}
        if self._group is not None and "group_key" not in given:
            options["group_key"] = group_key(field_at(payload, self._group))
        return options

    def read_result(self, job: Job) -> Any:
        """The result of a job, in the type that the function returned."""
        if job.result_json is msgspec.UNSET and self.returned.expected:
            raise UsageError(
                f"Job {job.id} ({job.kind}) is completed, but its result was not stored."
                " Declare it with store_result=True, or enqueue it with"
                " using(store_result=True). A handler that completes its job by run.transaction()"
                " sets run.result inside of it."
            )
        return self.returned.read(job.result)

    def _path(self, path: str) -> tuple[str | int, ...]:
        steps = field_path(path, "group")
        self._check_path(path, steps, "group")
        return steps

    def _check_shared(self) -> None:
        """Check by the rules for a job. Fields that do not exist would give all jobs one key."""
        unique = self._shared.get("unique")
        if isinstance(unique, Unique):
            for path in (*unique.fields, *unique.exclude):
                self._check_path(path, field_path(path, "unique"), "unique")
        elif unique is not None and not callable(unique):
            raise InvalidInput("unique", f"must be Unique or a function, got {unique!r}")
        rest = {name: value for name, value in self._shared.items() if name != "unique"}
        given = {name: getattr(self.defaults, name) for name in ("backoff", "retention", "timeout")}
        key = None if unique is None else "any"
        prepare(NewJob(self.kind, {}, unique_key=key, **rest, **given), "", now=0)

    def _check_path(self, path: str, steps: Sequence[str | int], field: str) -> None:
        members = self.arguments.members
        if steps and members is not None and steps[0] not in members:
            known = ", ".join(members) or "nothing"
            raise InvalidInput(
                field, f"names {path!r}, and {self.arguments.name} takes {known} for a payload"
            )


class JobCall(Generic[P, R_co]):
    """One call of a declared job, to be enqueued together with others."""

    def __init__(self, declaration: Declaration, payload: Json, options: EnqueueOptions) -> None:
        self.declaration: Declaration = declaration
        self.payload: Json = payload
        self.options: EnqueueOptions = options

    def new_job(self) -> NewJob:
        """A value for `onefold.enqueue_many`, beside jobs of other kinds."""
        return self.with_options({})

    def with_options(self, shared: EnqueueOptions) -> NewJob:
        """The same with the shared options of several calls; the call's own options win."""
        for name in CallOptions.__optional_keys__:
            if name in self.options:
                raise ConflictingOptions(
                    name,
                    "is set once for all items: job.using(…).enqueue_many(…), or an argument of"
                    " onefold.enqueue_many",
                )
        given: EnqueueOptions = {**shared, **self.options}
        options = self.declaration.options(self.payload, given)
        return NewJob(self.declaration.kind, self.payload, **options)

    def __repr__(self) -> str:
        """The kind only: the payload may be large or private."""
        return f"JobCall({self.declaration.kind!r})"


class Enqueuer(Generic[P, R_co]):
    """Enqueues a declared job: with options, in a transaction, or for a tenant."""

    def __init__(
        self,
        declaration: Declaration,
        calls: JobCalls,
        now: Callable[[], int],
        options: EnqueueOptions | None = None,
    ) -> None:
        self._declaration = declaration
        self._calls = calls
        self._now = now
        self._options: EnqueueOptions = {} if options is None else options

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued[R_co]:
        """Store a job that calls the function with these arguments, or find the existing one.

        Arguments that do not fit raise `InvalidInput` before anything is stored.
        """
        kind, payload, options = self._request(args, kwargs)
        answer = self._calls.enqueue(kind, payload, **options)
        set_read(answer, self._declaration.read_result)
        return answer

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued[R_co]:
        """`enqueue`, awaited."""
        kind, payload, options = self._request(args, kwargs)
        answer = await self._calls.aenqueue(kind, payload, **options)
        set_read(answer, self._declaration.read_result)
        return answer

    def call(self, *args: P.args, **kwargs: P.kwargs) -> JobCall[P, R_co]:
        """One call for `enqueue_many`, with the options of `using`."""
        payload = self._declaration.arguments.to_payload(args, kwargs)
        return JobCall(self._declaration, payload, self._options)

    def enqueue_many(self, calls: Iterable[JobCall[P, R_co]]) -> EnqueuedMany[R_co]:
        """Store many, all or none; the results are in the order of the calls.

        send_email.enqueue_many([send_email.call(1, "welcome"), send_email.call(2, "welcome")])
        """
        new_jobs, options = self._requests(calls)
        answers = self._calls.enqueue_many(new_jobs, **options)
        set_read(answers, self._declaration.read_result)
        return answers

    async def aenqueue_many(self, calls: Iterable[JobCall[P, R_co]]) -> EnqueuedMany[R_co]:
        """`enqueue_many`, awaited."""
        new_jobs, options = self._requests(calls)
        answers = await self._calls.aenqueue_many(new_jobs, **options)
        set_read(answers, self._declaration.read_result)
        return answers

    def unique_key(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """The unique key of a job with these arguments, after the defaults of the signature."""
        kind, payload, options = self._request(args, kwargs)
        rest = {
            name: options[name] for name in options if name not in CallOptions.__optional_keys__
        }
        key = prepare(NewJob(kind, payload, **rest), "", now=self._now()).request.unique_key
        if key is None:
            raise UsageError(f"{kind} has no unique key: declare it with unique=Unique(…).")
        return key

    def using(self, **options: Unpack[EnqueueOptions]) -> Enqueuer[P, R_co]:
        """The same with options for the enqueue, which win over the declared ones.

        `using(unique_key=None)` switches a declared key off.
        """
        checks.options(options, EnqueueOptions.__optional_keys__)
        merged: EnqueueOptions = {**self._options, **options}
        return Enqueuer(self._declaration, self._calls, self._now, merged)

    def within(self, connection: object) -> Enqueuer[P, R_co]:
        """The same on your connection and inside of your transaction; you commit."""
        within: Callable[[object], JobCalls] | None = getattr(self._calls, "within", None)
        if within is None:
            raise UsageError("This is within a connection already.")
        return Enqueuer(self._declaration, within(connection), self._now, self._options)

    def tenant(self, name: str) -> Enqueuer[P, R_co]:
        """The same for one tenant."""
        tenant: Callable[[str], JobCalls] | None = getattr(self._calls, "tenant", None)
        if tenant is None:
            raise UsageError("This is for a tenant already, or within: job.tenant(…).within(…).")
        return Enqueuer(self._declaration, tenant(name), self._now, self._options)

    def _request(self, args: Any, kwargs: Any) -> tuple[str, Json, dict[str, Any]]:
        declaration = self._declaration
        payload = declaration.arguments.to_payload(args, kwargs)
        return declaration.kind, payload, declaration.options(payload, self._options)

    def _requests(self, calls: Iterable[JobCall[P, R_co]]) -> tuple[list[NewJob], CallOptions]:
        given: Any = dict(self._options)
        shared: Any = {
            name: given.pop(name) for name in CallOptions.__optional_keys__ if name in given
        }
        new_jobs: list[NewJob] = []
        kind = self._declaration.kind
        for item, call in enumerate(checks.listed(calls, "calls", f"{kind}.call(…)")):
            if not isinstance(call, JobCall) or call.declaration is not self._declaration:
                raise InvalidInput("calls", f"must hold {kind}.call(…), got {call!r}", item=item)
            try:
                new_jobs.append(call.with_options(given))
            except InvalidInput as error:
                raise error.at(item) from None
        return new_jobs, shared


class DeclaredJob(Enqueuer[P, R_co]):
    """A function that is also a job."""

    __name__: str
    __qualname__: str

    def __init__(self, declaration: Declaration, calls: JobCalls, now: Callable[[], int]) -> None:
        super().__init__(declaration, calls, now)
        self.kind: str = declaration.kind
        self.function: Callable[..., Any] = declaration.function
        self.is_async: bool = declaration.is_async
        self.isolation: Isolation = declaration.isolation
        self.timeout: timedelta | None = declaration.timeout
        self.on_dead: Callable[[Job], Any] | None = declaration.on_dead
        self.stores_result: bool = declaration.stores_result
        self.wants_run: bool = declaration.arguments.run is not None
        self.rules: ErrorRules = declaration.rules
        self.context: Context = calls.context
        self.declaration: Declaration = declaration
        wrapper: Any = self
        update_wrapper(wrapper, declaration.function)

    def bind(self, job: Job | JobRow, run: Run | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments for the function; `InvalidInput` if the payload does not fit."""
        return self.declaration.arguments.bind(job.payload_json, run)

    def __reduce__(self) -> str:
        """Pickle it by its name, as functions are."""
        return self.function.__qualname__

    def __repr__(self) -> str:
        """The kind, and the place of the function."""
        return f"<job {self.kind!r}: {self.declaration.place}>"


class JobFunction(DeclaredJob[P, R_co], Generic[P, R_co, Q, C_co]):
    """A declared job that can be called like its function."""

    def __call__(self, *args: Q.args, **kwargs: Q.kwargs) -> C_co:
        """Run the function directly, without a queue."""
        answer: C_co = self.function(*args, **kwargs)
        return answer


class Registry:
    """The declared jobs of an Onefold, by kind: the jobs that its workers can run."""

    def __init__(self) -> None:
        self._jobs: dict[str, DeclaredJob[..., Any]] = {}

    @property
    def kinds(self) -> tuple[str, ...]:
        """The declared jobs, in the order of declaration."""
        return tuple(self._jobs)

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues of declared jobs, in the order of declaration."""
        return tuple(dict.fromkeys(job.declaration.queue for job in self._jobs.values()))

    def get(self, kind: str) -> DeclaredJob[..., Any] | None:
        """The job of this kind, or None if it is not declared here."""
        return self._jobs.get(kind)

    def add(self, job: DeclaredJob[..., Any]) -> None:
        """Add a job; a kind has one function."""
        known = self._jobs.get(job.kind)
        if known is not None and known.declaration.is_another(job.declaration):
            raise InvalidInput(
                "kind",
                f"{job.kind!r} is declared twice, by {known.declaration.place} and by"
                f" {job.declaration.place}. Give one of them another kind=.",
            )
        self._jobs[job.kind] = job


def _function(function: Any) -> Callable[..., Any]:
    if isinstance(function, staticmethod | classmethod):
        raise InvalidInput(
            "function", "is a method already: put @staticmethod above @onefold.job, or declare a"
            " function"
        )  # fmt: skip
    if not inspect.isfunction(function):
        raise InvalidInput("function", f"must be a function, got {function!r}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidInput(function.__name__, "is a generator; use a plain or async function")
    return function


def _kind(function: Callable[..., Any], kind: str | None) -> str:
    if kind is None and function.__name__ == "<lambda>":
        raise InvalidInput("kind", "must be given for a lambda, which has no name")
    return checks.name(function.__name__ if kind is None else kind, "kind")


def _ignores_extra(options: Mapping[str, Any]) -> bool:
    extra = options.get("extra", "forbid")
    if extra not in ("forbid", "ignore"):
        raise InvalidInput("extra", f'must be "forbid" or "ignore", got {extra!r}')
    return bool(extra == "ignore")


def _isolation(
    function: Callable[..., Any], options: Mapping[str, Any], *, is_async: bool
) -> Isolation:
    isolation: Any = options.get("isolation", "thread")
    if isolation not in {"thread", "process"}:
        raise InvalidInput("isolation", f'must be "thread" or "process", got {isolation!r}')
    if "isolation" in options and is_async:
        raise ConflictingOptions(
            "isolation", "is for plain functions; a coroutine runs in the worker's event loop"
        )
    if isolation == "process" and "<" in function.__qualname__:
        raise ConflictingOptions(
            "isolation",
            f'"process" needs a function that can be imported, and {function.__qualname__} is'
            " inside of another",
        )
    answer: Isolation = isolation
    return answer
