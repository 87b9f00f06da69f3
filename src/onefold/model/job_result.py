"""Waiting for the result of an enqueued job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol

from onefold.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from typing_extensions import TypeVar

    from onefold.model.job import Job

    R_co = TypeVar("R_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    R_co = TypeVar("R_co", covariant=True)

A = TypeVar("A", bound="Asks")


class Results(Protocol):
    """Waits for results of jobs."""

    def wait(self, job_id: str, timeout: timedelta | None) -> Any:
        """The result, once the job has ended."""
        ...

    async def await_(self, job_id: str, timeout: timedelta | None) -> Any:  # noqa: ASYNC109 - both colours wait alike
        """`wait`, awaited."""
        ...

    def reading(self, read: Callable[[Job], Any], /) -> Results:
        """The same, with another conversion of the result."""
        ...


class Asks:
    """A value that may be bound to an object that waits for results.

    The binding is not a field: it is not compared, printed or pickled.
    """

    __slots__ = ("_results",)

    _results: Results


class Awaited(Asks, Generic[R_co]):
    """An enqueued job whose result its caller can wait for."""

    __slots__ = ()

    id: str

    def result(self, *, timeout: timedelta | None = None) -> R_co:
        """Wait until the job has ended, and return its handler's result, if that is stored.

        Raises `JobFailed` if it is dead or cancelled, `ResultTimeout` if it has not ended after
        `timeout` (None: no limit), `JobNotFound` if it was pruned. A duplicate waits for the
        existing job.
        """
        result: R_co = self._source().wait(self.id, timeout)
        return result

    async def aresult(self, *, timeout: timedelta | None = None) -> R_co:  # noqa: ASYNC109 - both colours wait alike
        """`result`, awaited."""
        result: R_co = await self._source().await_(self.id, timeout)
        return result

    def _source(self) -> Results:
        results = results_of(self)
        if results is None:
            raise UsageError(
                "This answer does not know its database any more (it was copied, or sent to another"
                f" process). Look at the job itself: onefold.get({self.id!r})."
            )
        return results


_SLOT: Any = Asks.__dict__["_results"]


def results_of(answer: Asks) -> Results | None:
    """The object that waits for results."""
    found: Results | None = getattr(answer, "_results", None)
    return found


def asking(answer: A, results: Results) -> A:
    """The same value, bound to `results`."""
    # The struct is frozen, but this is not a field.
    _SLOT.__set__(answer, results)
    return answer


def reading(answer: A, read: Callable[[Job], Any]) -> A:
    """The same value with another conversion of its result."""
    results = results_of(answer)
    return answer if results is None else asking(answer, results.reading(read))
