"""A place behind PgBouncer: what is opened there prepares nothing."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import psycopg

from onefold import Onefold
from tests.fixtures.place import PATIENCE, Place


class PooledPlace(Place):
    """Can be sent to another process, like any place."""

    def open(
        self,
        *,
        busy_timeout: timedelta = PATIENCE,
        clock: Callable[[], datetime] | None = None,
        name: str | None = None,
    ) -> Onefold:
        return Onefold(
            self.named(name).url,
            schema=self.schema,
            busy_timeout=busy_timeout,
            clock=clock,
            prepared_statements=False,
        )

    def connect(self, *, wait: timedelta = PATIENCE) -> Any:
        return psycopg.connect(self.url, autocommit=True, prepare_threshold=None)
