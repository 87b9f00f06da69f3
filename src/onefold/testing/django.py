"""A mixin for Django's test cases, which looks at the jobs of the project and runs them.

class OrderTests(OnefoldMixin, TestCase):
    def test_an_order_is_confirmed(self):
        self.client.post("/orders", {"item": 7})
        self.assert_enqueued("send_confirmation", {"item": 7})
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from onefold.django import get_onefold
from onefold.django.instance import read_settings
from onefold.errors import Needs, UsageError
from onefold.testing import jobs

with Needs("onefold[django]"):
    from asgiref.sync import sync_to_async
    from django.db import connections
    from django.test import TestCase

if TYPE_CHECKING:
    from onefold.model.job import Job, Json


class OnefoldMixin:
    """Put it before `TestCase` or `TransactionTestCase`.

    It looks inside of the transaction that is open, as that of each test of a `TestCase`.
    """

    def enqueued(self, kind: str | None = None, payload: Json | UnsetType = UNSET) -> list[Job]:
        """The jobs that are stored, in any state, the oldest first."""
        return jobs.enqueued(get_onefold(), kind, payload, within=_open_block())

    async def aenqueued(
        self, kind: str | None = None, payload: Json | UnsetType = UNSET
    ) -> list[Job]:
        """`enqueued`, awaited."""
        return await sync_to_async(self.enqueued)(kind, payload)

    def assert_enqueued(self, kind: str, payload: Json | UnsetType = UNSET) -> Job:
        """The newest job of this kind whose payload has these members, if it is an object."""
        return jobs.assert_enqueued(get_onefold(), kind, payload, within=_open_block())

    async def aassert_enqueued(self, kind: str, payload: Json | UnsetType = UNSET) -> Job:
        """`assert_enqueued`, awaited."""
        return await sync_to_async(self.assert_enqueued)(kind, payload)

    def refute_enqueued(self, kind: str, payload: Json | UnsetType = UNSET) -> None:
        """Fail if such a job is enqueued."""
        jobs.refute_enqueued(get_onefold(), kind, payload, within=_open_block())

    async def arefute_enqueued(self, kind: str, payload: Json | UnsetType = UNSET) -> None:
        """`refute_enqueued`, awaited."""
        await sync_to_async(self.refute_enqueued)(kind, payload)

    def drain(self, *, raises: bool = True, concurrency: int = 1) -> list[Job]:
        """Run the jobs that are due, and those that they enqueue; for a `TransactionTestCase`.

        What a handler raises is raised, unless `raises` is False.
        """
        self._refuse_block(is_open=_open_block() is not None)
        return jobs.drain(get_onefold(), raises=raises, concurrency=concurrency)

    async def adrain(self, *, raises: bool = True, concurrency: int = 1) -> list[Job]:
        """`drain`, awaited."""
        self._refuse_block(is_open=False)
        return await jobs.adrain(get_onefold(), raises=raises, concurrency=concurrency)

    def _refuse_block(self, *, is_open: bool) -> None:
        if isinstance(self, TestCase):
            raise UsageError(
                "A TestCase rolls its transaction back, so a worker never sees its jobs. Use"
                " TransactionTestCase for tests that run jobs."
            )
        if is_open:
            raise UsageError(
                "A transaction.atomic() block is open, and a worker sees its jobs after the commit."
                " Run them after the block."
            )


def _open_block() -> object:
    """The connection of the project, if a block is open and Onefold uses the same database.

    The block of an async test is not open in its event loop.
    """
    jobs.refuse_event_loop()
    alias = read_settings().alias
    if alias is None or not connections[alias].in_atomic_block:
        return None
    return connections[alias]
