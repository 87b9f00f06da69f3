"""What is declared of a job: its function, and the options that all of its enqueues share."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypedDict

from onefold.arguments import Arguments, Result
from onefold.calls.defaults import Said
from onefold.errors import ConflictingOptions, InvalidInput, UsageError
from onefold.model import checks
from onefold.model.job import DEFAULT_QUEUE, NewJob
from onefold.model.json_text import to_json
from onefold.model.limit import group_key
from onefold.model.new_job import prepare
from onefold.model.outcome import ErrorRule, ErrorRules, error_rules
from onefold.model.unique import Unique, field_at, field_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

    from onefold.calls.jobs import EnqueueOptions
    from onefold.model.job import Job, Json, KeyRule, UniqueWhile
    from onefold.model.lifecycle import Retention
    from onefold.model.retry import Backoff

Isolation: TypeAlias = Literal["thread", "process"]
Extra: TypeAlias = Literal["forbid", "ignore"]

UNIQUE_OPTIONS: Final = frozenset({"unique", "unique_while", "unique_for", "across_kinds"})
SHARED_OPTIONS: Final = UNIQUE_OPTIONS | {"queue", "priority", "max_attempts", "tags"}
"""What is declared and goes to every enqueue as it is."""


class DeclareOptions(TypedDict, total=False):
    """What `@onefold.job(…)` may be told by name."""

    kind: str | None
    """The function's name, unless something else is said."""
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
    """The argument, or the dotted path into one, that says which group a job belongs to."""
    store_result: bool
    isolation: Isolation
    """Where a plain function runs: in a thread, or in a process that can be killed."""
    extra: Extra
    """Members of a payload that are no arguments: a failure ("forbid"), or dropped ("ignore")."""
    retry_on: ErrorRule | Sequence[ErrorRule]
    bury_on: ErrorRule | Sequence[ErrorRule]
    done_on: ErrorRule | Sequence[ErrorRule]
    on_dead: Callable[[Job], Any] | None
    """Called when a job of this kind is buried; plain, or a coroutine function."""


class Declaration:
    """A function, how its arguments become a payload, and what goes with every enqueue."""

    def __init__(self, function: Callable[..., Any], options: DeclareOptions) -> None:
        """Everything that can be wrong with a declaration is refused here."""
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
        self.said: Said = Said(options.get("backoff"), options.get("retention"), self.timeout)
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
        """Where the function is, for people."""
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
        """False where the other is of the same function, run again: a reload, or a cell."""
        ours, theirs = self.function, other.function
        if (ours.__module__, ours.__qualname__) != (theirs.__module__, theirs.__qualname__):
            return True
        one, two = inspect.unwrap(ours).__code__, inspect.unwrap(theirs).__code__
        same_file: bool = one.co_filename == two.co_filename
        same_line: bool = one.co_firstlineno == two.co_firstlineno
        return same_file and not same_line

    def options(self, payload: Json, said: EnqueueOptions) -> dict[str, Any]:
        """Everything that an enqueue is told: what is declared, and what is said for this one."""
        shared = self._shared
        if "unique_key" in said and said["unique_key"] is None:
            # Switched off for once, with what is declared about it.
            shared = {name: shared[name] for name in shared if name not in UNIQUE_OPTIONS}
        options: dict[str, Any] = {**shared, **said}
        if self._group is not None and "group_key" not in said:
            options["group_key"] = group_key(field_at(payload, self._group))
        return options

    def read_result(self, job: Job) -> Any:
        """What the function returned, in its own type."""
        if job.result_text is None and self.returned.expected:
            raise UsageError(
                f"Job {job.id} ({job.kind}) is completed, but what it returned was not kept."
                " Declare it with store_result=True, or enqueue it with"
                " using(store_result=True). A handler that completes its job by run.transaction()"
                " sets run.result inside of it."
            )
        return self.returned.read(job.result)

    def to_json(self, value: Any) -> Json:
        """What the function returned, as it is stored."""
        result: Json = to_json(value, "result")
        return result

    def _path(self, path: str) -> tuple[str | int, ...]:
        steps = field_path(path, "group")
        self._check_path(path, steps, "group")
        return steps

    def _check_shared(self) -> None:
        """By the rules for a job. Fields that do not exist would give all jobs one key."""
        unique = self._shared.get("unique")
        if isinstance(unique, Unique):
            for path in (*unique.fields, *unique.exclude):
                self._check_path(path, field_path(path, "unique"), "unique")
        elif unique is not None and not callable(unique):
            raise InvalidInput("unique", f"must be Unique or a function, got {unique!r}")
        rest = {name: value for name, value in self._shared.items() if name != "unique"}
        said = {name: getattr(self.said, name) for name in ("backoff", "retention", "timeout")}
        key = None if unique is None else "any"
        prepare(NewJob(self.kind, {}, unique_key=key, **rest, **said), "", now=0)

    def _check_path(self, path: str, steps: Sequence[str | int], field: str) -> None:
        members = self.arguments.members
        if steps and members is not None and steps[0] not in members:
            known = ", ".join(members) or "nothing"
            raise InvalidInput(
                field, f"names {path!r}, and {self.arguments.name} takes {known} for a payload"
            )


def _function(function: Any) -> Callable[..., Any]:
    if isinstance(function, staticmethod | classmethod):
        raise InvalidInput(
            "function", "is a method already: put @staticmethod above @onefold.job, or declare a"
            " function"
        )  # fmt: skip
    if not inspect.isfunction(function):
        raise InvalidInput("function", f"must be a function, got {function!r}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidInput(
            function.__name__, "is a generator, and nobody would ask it for its values"
        )
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
