"""The shop: one FastAPI application with an API, a form, a webhook and a job.

| | where | what is repeated |
|---|---|---|
| public API | `POST /api/orders` (api.py) | a client's retry after a timeout |
| form | `POST /orders` (pages.py) | a double click |
| webhook | `POST /hooks/payments` (hooks.py) | a delivery whose response was lost |
| job | `shop.mail` (shop.py) | a job whose worker died after the work |

All of them use the same mechanism and the same table: a key, a unique constraint, and a claim that
commits together with the work.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import FastAPI

from examples.shop.api import add_api
from examples.shop.hooks import add_hooks
from examples.shop.pages import add_pages
from examples.shop.shop import Shop

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from examples.shop.settings import Settings


def create_app(settings: Settings) -> FastAPI:
    """Create the application; it also runs the worker."""
    shop = Shop(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        await shop.open()
        async with shop.onefold.worker():
            yield
        await shop.close()

    app = FastAPI(title="A small shop", lifespan=lifespan)
    add_api(app, shop)
    add_pages(app, shop)
    add_hooks(app, shop)
    shop.idempotency.install(app)
    return app
