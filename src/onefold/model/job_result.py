"""What was enqueued, as something whose result can be waited for."""

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
    """Who can wait for the result of a job."""

    def wait(self, job_id: str, timeout: timedelta | None) -> Any:
        """The result, once the job has ended."""
        ...

    async def await_(self, job_id: str, timeout: timedelta | None) -> Any:  # noqa: ASYNC109 - both colours wait alike
        """`wait`, awaited."""
        ...

    def reading(self, read: Callable[[Job], Any], /) -> Results:
        """The same, with results made in another way of a completed job."""
        ...


class Asks:
    """An answer that may know who to ask for results.

    It is kept beside the fields, not among them: it is no part of what is compared, shown or
    pickled, and costs nothing where nobody waits.
    """

    __slots__ = ("_results",)

    _results: Results


class Awaited(Asks, Generic[R_co]):
    """A job that can be waited for by whoever enqueued it."""

    __slots__ = ()

    id: str

    def result(self, *, timeout: timedelta | None = None) -> R_co:
        """Wait until the job has ended, and give what its handler returned, if that is kept.

        Raises `JobFailed` where it is dead or cancelled, `ResultTimeout` where it has not ended
        after `timeout` (None waits as long as it takes), `JobNotFound` where it was pruned. A
        duplicate waits for the job that stands for it.
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
    """Who the answer asks for results."""
    found: Results | None = getattr(answer, "_results", None)
    return found


def asking(answer: A, results: Results) -> A:
    """The same answer, from now on with somebody to ask."""
    # Past the frozen fields around it: this is no field.
    _SLOT.__set__(answer, results)
    return answer


def reading(answer: A, read: Callable[[Job], Any]) -> A:
    """The same answer, from now on with its results made in another way."""
    results = results_of(answer)
    return answer if results is None else asking(answer, results.reading(read))
