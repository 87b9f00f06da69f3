"""The options that few jobs have: checked, and stored as one JSON text in the job's row."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import msgspec

from onefold.errors import ConflictingOptions, InvalidInput
from onefold.model import checks
from onefold.model.json_text import encode_payload
from onefold.model.lifecycle import Retention
from onefold.model.retry import DEFAULT_BACKOFF, Backoff
from onefold.model.timestamps import span, to_micros
from onefold.model.wire import decoder, encode

if TYPE_CHECKING:
    from onefold.model.job import NewJob

TAGS: Final = 50
METADATA_BYTES: Final = 64 * 1024


class Options(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stored options. Times are microseconds, but the waits of a backoff are seconds."""

    backoff: Backoff | None = None
    keep: dict[str, int] | None = None
    """How long the record is kept, by outcome, as in `Retention`."""
    timeout: int | None = None
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] | None = None
    result: bool | None = None
    """Whether the handler's return value is stored; None: the kind decides."""
    trace: dict[str, str] | None = None
    tick: int | None = None
    published: str | None = None
    """The publish key of the job, for display. Its claim decides."""


_decoder: Final = decoder(Options)
_NO_OPTIONS: Final = Options()


def read_options(text: str | None) -> Options:
    """Decode the stored options of a job."""
    return _NO_OPTIONS if text is None else _decoder.decode(text)


def backoff_of(options: Options) -> Backoff:
    """The job's own backoff, or the default."""
    return options.backoff or DEFAULT_BACKOFF


def encode_options(job: NewJob, *, exists: bool) -> str:
    """Check and encode the options; `exists`: the record holds a key after the job has ended."""
    options = Options(
        backoff=checked_backoff(job.backoff),
        keep=None if job.retention is None else stored_keep(job.retention, exists=exists),
        timeout=None if job.timeout is None else _timeout(job.timeout),
        tags=_tags(job.tags) if job.tags != () else (),
        metadata=None if job.metadata is None else _metadata(job.metadata),
        result=None if job.store_result is None else checks.flag(job.store_result, "store_result"),
        trace=None if job.trace is None else _trace(job.trace),
        tick=None if job.tick is None else to_micros(job.tick, "tick"),
        published=job.idempotency_key,
    )
    return encode(options).decode()


def _timeout(timeout: object) -> int:
    return span(timeout, "timeout", least=timedelta(milliseconds=1))


def checked_backoff(backoff: object) -> Backoff | None:
    """The same backoff, or None."""
    if backoff is not None and not isinstance(backoff, Backoff):
        raise InvalidInput("backoff", f"must be Exponential or Fixed, got {backoff!r}")
    return backoff


def stored_keep(retention: object, *, exists: bool = False) -> dict[str, int] | None:
    """How long records are kept, by outcome, in microseconds: the stored form."""
    if retention is None:
        return None
    if not isinstance(retention, Retention):
        raise InvalidInput("retention", f"must be Retention, got {retention!r}")
    keep = {
        outcome: span(duration, f"retention.{outcome}")
        for outcome in ("completed", "dead", "cancelled")
        if (duration := getattr(retention, outcome)) is not None
    }
    if exists and 0 in keep.values():
        raise ConflictingOptions(
            "retention", 'of zero contradicts unique_while="exists": the key would be free at once'
        )
    return keep or None


def _tags(tags: object) -> tuple[str, ...]:
    listed = checks.listed(tags, "tags", "strings")
    if len(listed) > TAGS:
        raise InvalidInput("tags", f"must be at most {TAGS}, got {len(listed)}")
    return tuple(checks.key(tag, "tags") for tag in listed)


def _metadata(metadata: object) -> dict[str, Any]:
    if not _is_mapping(metadata):
        raise InvalidInput("metadata", f"must be a mapping, got {metadata!r}")
    try:
        text = encode_payload(metadata)
    except InvalidInput as error:
        raise InvalidInput("metadata", error.reason) from error
    if "\\u0000" in text.replace("\\\\", ""):
        # PostgreSQL cannot read the options of such a job, so the job could never be completed.
        raise InvalidInput("metadata", "must not contain NUL")
    if (size := len(text.encode())) > METADATA_BYTES:
        raise InvalidInput("metadata", f"must have at most {METADATA_BYTES} bytes, got {size}")
    decoded: dict[str, Any] = msgspec.json.decode(text)
    return decoded


def _trace(trace: object) -> dict[str, str]:
    if not _is_mapping(trace):
        raise InvalidInput("trace", f"must be a mapping, got {trace!r}")
    return {
        checks.key(name, "trace"): checks.text(value, "trace", longest=4096)
        for name, value in trace.items()
    }


def _is_mapping(value: object) -> TypeGuard[Mapping[Any, Any]]:
    return isinstance(value, Mapping)
