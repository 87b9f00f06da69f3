"""Where the key of a request may be, if not in a header: what a form is to the rules of HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from onefold.surfaces.http.answer import Answer
    from onefold.surfaces.http.asked import Asked
    from onefold.surfaces.http.body import Digested
    from onefold.surfaces.http.problem import Problem
    from onefold.surfaces.http.request import Request


@runtime_checkable
class KeySource(Protocol):
    """Finds keys, and tells of them in its own way."""

    @property
    def surface(self) -> str:
        """Where attempts come in."""
        ...

    @property
    def options(self) -> dict[str, Any]:
        """`PolicyOptions` that hold unless the route says otherwise."""
        ...

    def read(self, request: Request, body: Digested, principal: object) -> tuple[str, str] | None:
        """The scope and the key; None where there is none, `Refused` where it is not acceptable."""
        ...

    def page(self, asked: Asked, problem: Problem) -> Answer | None:
        """The answer that stands for a problem; None for the problem itself."""
        ...
