"""Every route of the server, the busiest first: routing tries them in this order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from onefold.server.route import Route

ROUTES: Final[tuple[Route, ...]] = ()
