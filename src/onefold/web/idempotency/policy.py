"""The policy of a route: its options, their checks, and the fate of a key.

Joined: 5xx, 408, 425, 429 and exceptions roll back and free the key; others are stored.
Leased: 408, 425, 429, 503 and `retryable` exceptions free the key; `on_4xx`, `on_5xx` and
`on_error` decide about the others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar

import msgspec

from onefold.effects.verify import Verify
from onefold.errors import ConflictingOptions, InvalidInput
from onefold.model import checks
from onefold.model.claim import TAKEOVERS, Guarantee, Takeover
from onefold.model.timestamps import span
from onefold.web.http import HttpRequest, HttpResponse
from onefold.web.idempotency.encryption import Sealing
from onefold.web.idempotency.fingerprint import Fields, How
from onefold.web.idempotency.key import KeyRules, KeySource
from onefold.web.idempotency.stored_response import Kept

if TYPE_CHECKING:
    from collections.abc import Mapping


C = TypeVar("C", bound=Callable[..., Any])

Refresh: TypeAlias = Callable[[HttpRequest, HttpResponse], HttpResponse | Awaitable[HttpResponse]]
Fate: TypeAlias = Literal["store", "release", "unknown"]
"""Store the response; free the key; or reject retries until an operator decides."""

PASSING: Final = frozenset({408, 425, 429, 503})
"""Statuses that mean "try again": they free the key."""

SERVER_ERRORS: Final = 500
CLIENT_ERRORS: Final = 400

_MOMENT: Final = timedelta(microseconds=1)


class RoutePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a route: how its keyed requests are treated."""

    transaction: Any = None
    """Joined: the engine, pool, session maker, or function that returns one, on which the handler's
    transaction begins; or the Onefold object for its own database. Claim, rows and response are
    committed together: exactly once."""
    takeover: Takeover | None = None
    """Leased: what a retry does after the process of the first attempt has died."""
    verify: Verify | None = None
    """Finds the result of an attempt that has died: `Done(HttpResponse(…))`, `NotDone()` or
    None."""
    guarantee: Guarantee | None = None
    """The guarantee that you need; a route that does not have it is rejected at the start."""
    required: bool = True
    """True: a request without a key is rejected."""
    key: KeyRules = KeyRules()
    """Which keys are accepted, in which headers."""
    scope: Literal["principal", "route"] = "principal"
    """`principal`: a key is unique per caller, and an error on another route.
    `route`: a key is unique per caller and route."""
    fingerprint: How = "raw"
    """What must be the same in a retry: the `raw` body, its `json` or `form` value, `Fields`, or
    the result of a function."""
    fingerprint_headers: tuple[str, ...] = ()
    """Headers that must be the same, besides Content-Type."""
    canonical_query: bool = False
    """True: the order of the query parameters does not matter."""
    decode: bool = False
    """True: a body is compared without its Content-Encoding. As it is, if it expands to more than
    16 MiB or has more than 100 gzip members."""
    retention: timedelta = timedelta(hours=24)
    """How long a response is stored."""
    expired: Literal["new", "refuse"] = "new"
    """`refuse` keys that carry their time (UUIDv7) once it is longer ago than `retention`."""
    lease: timedelta = timedelta(seconds=60)
    """How long a key stays held after its process has died; renewed while the handler runs."""
    on_4xx: Literal["store", "release"] = "store"
    on_5xx: Fate = "store"
    """Of a leased route. A joined one is rolled back."""
    on_error: Fate = "store"
    retryable: tuple[type[Exception], ...] = ()
    """Exceptions that a handler raises before it has any effect."""
    wait: timedelta | None = None
    """How long a duplicate waits for the first response, before it receives 409."""
    waiters: int = 16
    """How many may wait at a time, in one process."""
    max_request: int = 4 * 1024 * 1024
    """Bytes of a body; more is 413."""
    kept: Kept = Kept()
    """What is stored of a response."""
    tombstone: Literal["problem", "location"] = "problem"
    """The response to a retry if the first response was too large to store."""
    stream: Literal["buffer", "forward", "tombstone"] = "buffer"
    """A streamed response: `buffer` sends it after it is stored; `forward` sends all but its end
    before it is stored; `tombstone` sends it and stores a tombstone."""
    marker: str = "Idempotent-Replayed"
    """The header that marks a replay."""
    mark_first: bool = False
    """True: a first response has that header with the value `false`."""
    fail_open: bool = False
    """Run unprotected if the database is unavailable; a header marks such a response."""
    redact: Callable[[HttpResponse], HttpResponse] | None = None
    """Returns what may be stored of a response."""
    sealing: Sealing | None = None
    """Encrypts what is stored."""
    refresh: Refresh | None = None
    """Returns a newer response instead of the stored one."""
    link: str | None = None
    """The URL of the documentation of these keys; part of every rejection."""
    form: KeySource | None = None
    """`Form(…)`: the key is in a hidden field, and rejections are pages."""

    @property
    def surface(self) -> str:
        """The surface of the claims."""
        return "http" if self.form is None else self.form.surface

    @property
    def joined(self) -> bool:
        """True if claim, work and response are committed together."""
        return self.transaction is not None

    @property
    def promises(self) -> Guarantee:
        """The guarantee for the effect of a keyed request."""
        if self.fail_open:
            return "at least once"
        if self.joined:
            return "exactly once"
        reruns = "release" in (self.on_4xx, self.on_5xx, self.on_error)
        return "at most once" if self.takeover == "refuse" and not reruns else "at least once"

    def fate(self, status: int) -> Fate:
        """The fate of a key after a response with this status."""
        if status in PASSING:
            return "release"
        if status >= SERVER_ERRORS:
            return "release" if self.joined else self.on_5xx
        return self.on_4xx if status >= CLIENT_ERRORS else "store"

    def fate_of(self, error: BaseException) -> Fate:
        """The fate of a key after an exception without a response."""
        if self.joined or isinstance(error, self.retryable):
            return "release"
        return self.on_error


class RouteOptions(RoutePolicy, Generic[C], frozen=True, kw_only=True):
    """What a decorator takes. `C` is a function with the arguments that a framework gives it."""

    principal: C | None = None
    """Returns the id of the caller, who the keys belong to."""
    tenant: C | None = None
    """Returns the owner of the keys."""


def policy(options: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> RoutePolicy:
    """Check the options of a route, on top of the defaults."""
    checks.options(options, frozenset(RoutePolicy.__struct_fields__))
    merged: dict[str, Any] = {**(defaults or {}), **options}
    form: object = merged.get("form")
    if isinstance(form, KeySource):
        merged = {**(defaults or {}), **form.options, **options}
    if "takeover" in options and "transaction" not in options:
        merged.pop("transaction", None)
    if "transaction" in options and "takeover" not in options:
        merged.pop("takeover", None)
    made = RoutePolicy(**merged)
    _check_mode(made)
    _check_values(made)
    _check_form(made)
    return made


def _check_mode(made: RoutePolicy) -> None:
    if made.joined and made.takeover is not None:
        raise ConflictingOptions(
            "takeover", "is for routes without a transaction: a transaction cannot end half done"
        )
    if not made.joined and made.takeover is None:
        raise InvalidInput(
            "takeover",
            "is missing for a route without transaction=: after the process of the first attempt"
            " has died, does a retry rerun it, resume it after its finished steps, or refuse?",
        )
    if made.takeover is not None and made.takeover not in TAKEOVERS:
        raise InvalidInput("takeover", f"must be rerun, resume or refuse, got {made.takeover!r}")
    if made.verify is not None and made.takeover != "refuse":
        raise ConflictingOptions("verify", 'is for takeover="refuse": other routes run again')
    if made.joined:
        _check_joined(made)
    if made.guarantee is not None and made.guarantee != made.promises:
        raise ConflictingOptions(
            "guarantee", f"is {made.guarantee!r}, but these options give {made.promises!r}"
        )


def _check_joined(made: RoutePolicy) -> None:
    """Reject options that conflict with one transaction."""
    if "unknown" in (made.on_5xx, made.on_error):
        raise ConflictingOptions("on_5xx", "unknown is for leased routes: a joined one is undone")
    if made.stream == "forward":
        raise ConflictingOptions(
            "stream", "forward is for leased routes: what is not committed must not be sent"
        )
    if made.fail_open:
        raise ConflictingOptions(
            "fail_open", "is for leased routes: without its transaction this handler cannot run"
        )


def _check_values(made: RoutePolicy) -> None:
    for name, default in zip(made.__struct_fields__, made.__struct_defaults__, strict=True):
        value: object = getattr(made, name)
        if isinstance(default, bool):
            checks.flag(value, name)
        elif isinstance(default, int) and (type(value) is not int or value < 0):
            raise InvalidInput(name, f"must be a whole number from 0 on, got {value!r}")
        elif isinstance(default, timedelta):
            span(value, name, least=_MOMENT)
        elif name in _CHOICES and value not in _CHOICES[name]:
            choices = ", ".join(_CHOICES[name])
            raise InvalidInput(name, f"must be one of {choices}, got {value!r}")
    if made.wait is not None:
        span(made.wait, "wait")
    _check_kinds(made)


def _check_kinds(made: RoutePolicy) -> None:
    for name in ("verify", "redact", "refresh"):
        value: object = getattr(made, name)
        if value is not None and not callable(value):
            raise InvalidInput(name, f"must be a function, got {value!r}")
    how: object = made.fingerprint
    if how not in ("raw", "json", "form") and not isinstance(how, Fields) and not callable(how):
        raise InvalidInput(
            "fingerprint", f"must be raw, json, form, Fields or a function, got {how!r}"
        )
    if made.expired == "refuse" and made.key.format != "uuid":
        raise ConflictingOptions(
            "expired", 'refuse needs key=KeyRules(format="uuid"): only UUIDv7 contains its time'
        )
    if type(made.retryable) is not tuple:
        raise InvalidInput("retryable", f"must be a tuple of exceptions, got {made.retryable!r}")


def _check_form(made: RoutePolicy) -> None:
    form = made.form
    if form is None:
        return
    if not isinstance(form, KeySource):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput("form", f"must be a Form(keys, name), got {form!r}")
    if made.retention < form.options["retention"]:
        raise ConflictingOptions(
            "retention",
            f"must not be shorter than the keys of the form are accepted, got {made.retention}",
        )


_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "scope": ("principal", "route"),
    "expired": ("new", "refuse"),
    "on_4xx": ("store", "release"),
    "on_5xx": ("store", "release", "unknown"),
    "on_error": ("store", "release", "unknown"),
    "tombstone": ("problem", "location"),
    "stream": ("buffer", "forward", "tombstone"),
}
