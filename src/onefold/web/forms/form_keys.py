"""Signed keys in hidden fields: `1.<id>.<form>.<session>.<time>.<signature>`.

The id cannot be guessed, and the session is a keyed digest, so a saved page does not reveal it.
The signature is checked first. The claim's key is the id, because a signature has more than one
spelling. The reason of a rejection is only logged, except for a key that is too old.
"""

from __future__ import annotations

import hashlib
import re
import secrets as randomness
from datetime import UTC, datetime, timedelta
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from onefold.errors import InvalidInput, Needs

with Needs("onefold[http]"):
    from itsdangerous import BadSignature, Signer, TimestampSigner

from onefold.web.forms.no_store import note_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Markup(str):
    """HTML that templates do not escape: Jinja2 and Django call `__html__`."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


def hidden_input(name: str, value: str) -> Markup:
    """A hidden field."""
    # Without autocomplete="off", Firefox puts the old key into a page that is reloaded.
    return Markup(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}" autocomplete="off">'
    )


FIELD: Final = "onefold_key"
MAX_AGE: Final = timedelta(hours=24)
SKEW: Final = timedelta(minutes=5)
"""The most that the clocks of two servers may differ."""

VERSION: Final = "1"
ID_BYTES: Final = 16
SECRET_BYTES: Final = 16

# Without dots, which separate the parts of a key.
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

Why: TypeAlias = Literal["forged", "unknown version", "other form", "other session", "expired"]


class FormKey(msgspec.Struct, frozen=True):
    """A valid key for a form and a session."""

    id: str
    form: str
    session: str
    """A digest of the session, under our secret."""
    issued_at: datetime

    @property
    def scope(self) -> str:
        """The scope of its claim."""
        return f"{self.form}:{self.session}"


class RefusedKey(msgspec.Struct, frozen=True):
    """A text that is not a valid key of this form and this session."""

    why: Why
    """For logs; never for the visitor. An expired key was valid for this form and session."""


class FormKeys:
    """Issues and checks the keys of forms."""

    def __init__(
        self,
        secret: str | bytes,
        *,
        retired: Sequence[str | bytes] = (),
        max_age: timedelta = MAX_AGE,
        field: str = FIELD,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        """`secret` signs; keys that were signed with a `retired` one are accepted as well.

        A page may be open for `max_age` before it is submitted. `field` is the name of the hidden
        field; `clock` replaces the clock of the machine, for tests.
        """
        if isinstance(retired, str | bytes):
            raise InvalidInput("retired", "must be a list of secrets, got a single one")
        if max_age <= timedelta():
            raise InvalidInput("max_age", f"must be longer than zero, got {max_age!r}")
        self.max_age: timedelta = max_age
        self.field: str = checked_name(field, "field")
        self._now: Callable[[], datetime] = clock or partial(datetime.now, UTC)
        # itsdangerous signs with the last one.
        secrets = [_checked_secret(one) for one in (*reversed(retired), secret)]
        self._keys = ClockSigner(secrets, "onefold.forms.key", self._now)
        self._sessions = Signer(
            secrets,
            "onefold.forms.session",
            key_derivation="hmac",
            digest_method=hashlib.sha256,
        )

    @property
    def retention(self) -> timedelta:
        """How long a response is stored: longer than its key is accepted."""
        return self.max_age + 2 * SKEW

    def issue(self, form: str, session: str) -> str:
        """A new key, for a page that shows this form to this session."""
        checked_name(form, "form")
        binding = self._sessions.get_signature(_checked_session(session)).decode()
        note_key()
        return self._signed(form, binding)

    def renew(self, text: str) -> str:
        """A new key for the form and the session of an older key, also of an expired one."""
        _, _, form, binding = self._keys.unsign(text).decode().split(".")
        return self._signed(form, binding)

    def _signed(self, form: str, binding: str) -> str:
        key_id = randomness.token_urlsafe(ID_BYTES)
        return self._keys.sign(f"{VERSION}.{key_id}.{form}.{binding}").decode()

    def hidden_field(self, form: str, session: str) -> Markup:
        """A new key as a hidden `<input>`. Jinja2 and Django's templates do not escape it again."""
        return hidden_input(self.field, self.issue(form, session))

    def check(self, text: str, form: str, session: str) -> FormKey | RefusedKey:
        """Check a submitted key for this form and this session."""
        checked_name(form, "form")
        _checked_session(session)
        try:
            value, issued_at = self._keys.unsign(text, return_timestamp=True)
        except (BadSignature, UnicodeEncodeError):
            return RefusedKey("forged")
        version, _, rest = value.decode().partition(".")
        if version != VERSION:
            return RefusedKey("unknown version")
        key_id, issued_for, binding = rest.split(".")
        if issued_for != form:
            return RefusedKey("other form")
        if not self._sessions.verify_signature(session, binding):
            return RefusedKey("other session")
        # Not below -SKEW: keys of a clock that was far ahead would outlive their stored responses.
        if not -SKEW <= self._now() - issued_at <= self.max_age:
            return RefusedKey("expired")
        return FormKey(key_id, form, binding, issued_at)


class ClockSigner(TimestampSigner):
    """Signs texts with their time, by a clock that tests can replace."""

    def __init__(self, secrets: list[bytes], salt: str, now: Callable[[], datetime]) -> None:
        """It signs with the last of the secrets."""
        super().__init__(secrets, salt, key_derivation="hmac", digest_method=hashlib.sha256)
        self._now = now

    def get_timestamp(self) -> int:
        """The time of the clock."""
        return int(self._now().timestamp())


def checked_name(value: object, what: str) -> str:
    """The name of a form or a field."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise InvalidInput(
            what, f"must be 1 to 64 letters, digits, hyphens or underscores, got {value!r}"
        )
    return value


def _checked_session(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidInput(
            "session",
            "must be a text that is the same for the page and its submission, such as a session id;"
            f" got {'an empty one' if value == '' else type(value).__name__}",
        )
    return value


def _checked_secret(value: object) -> bytes:
    secret = value.encode() if isinstance(value, str) else value
    if not isinstance(secret, bytes) or len(secret) < SECRET_BYTES:
        raise InvalidInput(
            "secret",
            f"must be text or bytes, {SECRET_BYTES} bytes or more, such as"
            " secrets.token_urlsafe(32); keep it outside of the code",
        )
    return secret
