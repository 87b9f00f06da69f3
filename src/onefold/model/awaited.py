"""What was enqueued, as something whose result can be waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol

from onefold.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta
    from typing import Self

    from typing_extensions import TypeVar

    from onefold.model.job import Job

    R_co = TypeVar("R_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    R_co = TypeVar("R_co", covariant=True)


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


class Awaited(Generic[R_co]):
    """A job that can be waited for by whoever enqueued it.

    Who to ask is kept beside the fields, not among them: it is no part of what is compared, shown
    or pickled, and costs nothing where nobody waits.
    """

    __slots__ = ("_results",)

    _results: Results
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

    def asking(self, results: Results) -> Self:
        """The same object, from now on with somebody to ask."""
        # Past the frozen fields around it: this is no field.
        _SLOT.__set__(self, results)
        return self

    def reading(self, read: Callable[[Job], Any]) -> Self:
        """The same object, from now on with its result made in another way."""
        return self.asking(self._source().reading(read))

    def _source(self) -> Results:
        results: Results | None = getattr(self, "_results", None)
        if results is None:
            raise UsageError(
                "This answer does not know its database any more (it was copied, or sent to another"
                f" process). Look at the job itself: onefold.get({self.id!r})."
            )
        return results


_SLOT: Any = Awaited.__dict__["_results"]
