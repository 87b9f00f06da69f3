"""A place behind PgBouncer: what is opened there prepares nothing."""

from datetime import timedelta
from typing import Any

import psycopg

from tests.fixtures.place import PATIENCE, Place


class PooledPlace(Place):
    """Can be sent to another process, like any place."""

    @property
    def prepared_statements(self) -> bool | None:
        return False

    def connect(self, *, wait: timedelta = PATIENCE) -> Any:
        return psycopg.connect(self.url, autocommit=True, prepare_threshold=None)
