"""What an operator sees of steps, and says about those whose outcome is unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from onefold.calls.procedure import Conductor, Procedure, Transaction
from onefold.effects.step_codec import encoded
from onefold.errors import InvalidInput
from onefold.model.claim import Holding
from onefold.model.ids import parse_id
from onefold.operations import steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from onefold.model.step import Step


class StepCalls:
    """The steps of jobs."""

    _conductor: Conductor
    _tenant: str

    def steps(self, job_id: str, *, results: bool | Callable[[Step], Any] = True) -> list[Step]:
        """The steps of a job, in the order in which they began.

        Results may be nobody's business: `results=False` leaves them out, and a function is given
        each step and answers with what to show of it.
        """
        return self._conductor.run(self._steps(job_id, results=results))

    async def asteps(
        self, job_id: str, *, results: bool | Callable[[Step], Any] = True
    ) -> list[Step]:
        """`steps`, awaited."""
        return await self._conductor.arun(self._steps(job_id, results=results))

    def _steps(
        self, job_id: str, *, results: bool | Callable[[Step], Any]
    ) -> Procedure[list[Step]]:
        if not isinstance(results, bool) and not callable(results):
            raise InvalidInput("results", f"must be True, False or a function, got {results!r}")
        wanted, shows = parse_id(job_id), results is not False
        found: list[Step] = yield Transaction(
            lambda sql: steps.look(sql, wanted, self._tenant, results=shows), write=False
        )
        if isinstance(results, bool):
            return found
        return [msgspec.structs.replace(step, result=results(step)) for step in found]

    def settle_step(self, job_id: str, step: str, *, result: Any = None) -> bool:
        """An operator's word: this step was done, with this result. False where it is over already.

        `step` is its label: `charge`, the second one `charge#2`, one with a key `charge[o-7]`.
        Replay the job afterwards: it goes on behind the step.
        """
        return self._conductor.run(self._force(job_id, step, encoded(result)))

    async def asettle_step(self, job_id: str, step: str, *, result: Any = None) -> bool:
        """`settle_step`, awaited."""
        return await self._conductor.arun(self._force(job_id, step, encoded(result)))

    def release_step(self, job_id: str, step: str) -> bool:
        """An operator's word: this step was not done, and may run. False where it is over already.

        Replay the job afterwards: it begins the step anew.
        """
        return self._conductor.run(self._force(job_id, step, None))

    async def arelease_step(self, job_id: str, step: str) -> bool:
        """`release_step`, awaited."""
        return await self._conductor.arun(self._force(job_id, step, None))

    def _force(self, job_id: str, label: str, value: str | None) -> Procedure[bool]:
        wanted, state = parse_id(job_id), Holding.FREE if value is None else Holding.SETTLED
        done: bool = yield Transaction(
            lambda sql: steps.force(
                sql, wanted, self._tenant, label=label, state=state, value=value
            )
        )
        return done
