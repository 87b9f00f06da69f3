"""Shared parts: one database, one `Onefold` object, and the job that sends mails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from examples.shop import orders
from onefold import Onefold, Run
from onefold.web.fastapi import Idempotency

if TYPE_CHECKING:
    from examples.shop.settings import Settings


class Shop:
    """The shared parts of the application."""

    def __init__(self, settings: Settings) -> None:
        """Connect to nothing yet."""
        self.settings = settings
        self.onefold = Onefold(settings.database)
        self.engine: AsyncEngine = create_async_engine(settings.sqlalchemy_url)
        # Every route is joined: its rows, its key and its response are one commit on this engine.
        self.idempotency = Idempotency(self.onefold, transaction=self.engine)

        @self.onefold.job(kind="shop.mail")
        async def mail(run: Run, order_id: str, subject: str) -> None:
            async with run.transaction(self.engine) as connection:
                await orders.send_mail(connection, order_id, subject)

        self.mail = mail

    async def open(self) -> None:
        """Create the tables."""
        await self.onefold.amigrate()
        async with self.engine.begin() as connection:
            await connection.run_sync(orders.tables.create_all)

    async def close(self) -> None:
        """Close the connections."""
        await self.engine.dispose()
        await self.onefold.aclose()
