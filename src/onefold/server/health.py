"""`/healthz`: the process lives. `/readyz`: it can do its work, or says why not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from onefold.errors import OnefoldError
from onefold.server import wire
from onefold.server.asking import Said

if TYPE_CHECKING:
    from onefold.server.asking import Asking

PATIENCE: Final = 2.0
"""Seconds that a database may take to say something."""


class Health(wire.Answer):
    """How it is."""

    status: str
    """`ok`, `draining` or `unavailable`."""
    reason: str | None = None


async def healthz(asking: Asking) -> Said:
    """The process answers."""
    del asking
    return Said(200, Health(status="ok"))


async def readyz(asking: Asking) -> Said:
    """The database answers with our tables, and nobody has asked this process to stop."""
    if asking.server.draining:
        return Said(503, Health(status="draining", reason="This process is stopping."))
    try:
        async with asyncio.timeout(PATIENCE):
            await asking.onefold.engine.alook(["default"])
    except TimeoutError:
        return Said(503, Health(status="unavailable", reason="The database does not answer."))
    except OnefoldError as error:
        return Said(503, Health(status="unavailable", reason=str(error)))
    return Said(200, Health(status="ok"))
