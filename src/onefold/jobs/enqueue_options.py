"""The options that `enqueue` accepts by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime, timedelta

    from onefold.model.job import Json, KeyRule, OnDuplicate, OnMismatch, UniqueWhile
    from onefold.model.lifecycle import Retention
    from onefold.model.retry import Backoff

EMPTY: Final[Mapping[str, Json]] = {}
"""The payload of a job without one. None is a payload: JSON's null."""


class CallOptions(TypedDict, total=False):
    """The options for duplicates."""

    on_duplicate: OnDuplicate
    on_mismatch: OnMismatch
    max_wait: timedelta | None


class JobOptions(TypedDict, total=False):
    """The options of a job, without its kind and payload. See `NewJob`."""

    queue: str
    priority: int
    run_at: datetime | None
    delay: timedelta | None
    max_attempts: int
    unique_key: str | None
    unique: KeyRule | None
    unique_while: UniqueWhile | None
    unique_for: timedelta | None
    across_kinds: bool
    idempotency_key: str | None
    idempotency_for: timedelta
    backoff: Backoff | None
    retention: Retention | None
    expires_at: datetime | None
    timeout: timedelta | None
    group_key: str | None
    tags: Sequence[str]
    metadata: Mapping[str, Json] | None
    store_result: bool | None
    request_id: str | None
    trace: Mapping[str, str] | None
    tick: datetime | None


class EnqueueOptions(JobOptions, CallOptions, total=False):
    """Everything that `enqueue` accepts by name."""
