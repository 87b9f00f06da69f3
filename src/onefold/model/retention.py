"""Retention: how long the record of a finished job stays."""

from __future__ import annotations

from datetime import timedelta

import msgspec


class Retention(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How long the record of a finished job stays, by outcome. None is the default of each."""

    completed: timedelta | None = None
    dead: timedelta | None = None
    cancelled: timedelta | None = None
