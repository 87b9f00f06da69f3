"""`why`: who has a key, and whom it has kept away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.calls.keys import stored_scope
from onefold.calls.procedure import Conductor, Procedure, once_through
from onefold.errors import ConflictingOptions
from onefold.model import checks
from onefold.model.json_text import sorted_payload
from onefold.model.stored_key import Question
from onefold.operations import stored_keys

if TYPE_CHECKING:
    from onefold.model.stored_key import Why

_UNSAID: Final[Any] = msgspec.UNSET


class WhyCalls:
    """Why was I deduplicated?"""

    _conductor: Conductor
    _tenant: str

    def why(
        self,
        key: str,
        *,
        surface: str | None = None,
        scope: str | None = None,
        fingerprint: str | None = None,
        payload: Any = _UNSAID,
    ) -> Why:
        """Everybody who has this key: jobs by their unique keys, and claims of every surface.

        Each with its state, since when, until when, and the requests that it has kept away. With a
        `fingerprint`, or the `payload` of an enqueue, each also says whether that is the request it
        stands for. `surface` and `scope` narrow the look, which takes a probe for each scope.
        """
        self._conductor.suppressing.flush()
        return self._conductor.run(self._why(key, surface, scope, fingerprint, payload))

    async def awhy(
        self,
        key: str,
        *,
        surface: str | None = None,
        scope: str | None = None,
        fingerprint: str | None = None,
        payload: Any = _UNSAID,
    ) -> Why:
        """`why`, awaited."""
        await self._conductor.suppressing.aflush()
        return await self._conductor.arun(self._why(key, surface, scope, fingerprint, payload))

    def _why(
        self,
        key: str,
        surface: str | None,
        scope: str | None,
        fingerprint: str | None,
        payload: Any,
    ) -> Procedure[Why]:
        if fingerprint is not None and payload is not _UNSAID:
            raise ConflictingOptions("fingerprint", "and payload exclude each other: say one")
        if payload is not _UNSAID:
            sorted_payload(payload)
        sought = stored_keys.Sought(
            tenant=self._tenant,
            key=checks.key(key, "key"),
            surface=None if surface is None else checks.name(surface, "surface"),
            scope=None if scope is None else stored_scope(scope),
        )
        digest = None if fingerprint is None else checks.key(fingerprint, "fingerprint")
        question = Question(digest, payload)
        return once_through(lambda sql: stored_keys.find_why(sql, sought, question), write=False)
