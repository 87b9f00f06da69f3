"""Sessions of the dashboard: a signed cookie that is bound to an API key.

Each request reads the key from the database: a key that is revoked or has expired ends its
sessions. While no API key was ever created, a server on loopback accepts visitors of this machine
without a login, as the API does.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec
from itsdangerous import BadSignature
from msgspec.structs import replace

from onefold.errors import InvalidInput
from onefold.model import checks
from onefold.server.auth import check_local
from onefold.web.forms.form_keys import ClockSigner

if TYPE_CHECKING:
    from onefold.app.onefold import Onefold
    from onefold.model.api_key import ApiKey
    from onefold.server.dashboard.page import Incoming

Role: TypeAlias = Literal["admin", "read"]

COOKIE: Final = "onefold_session"
TENANT: Final = "onefold_tenant"
"""The cookie with the tenant that the operator has chosen. It gives no rights."""
MAX_AGE: Final = timedelta(hours=12)
ANONYMOUS: Final = "-"
"""In the place of a key's id."""


class DashboardSession(msgspec.Struct, frozen=True, kw_only=True):
    """A visitor of the dashboard."""

    id: str
    tenant: str
    """The tenant whose jobs and keys are shown; empty for those of the operator."""
    role: Role
    name: str
    """The name of the visitor's API key, for people."""
    key: str = ANONYMOUS
    """The id of the API key."""
    own: bool = True
    """True if the dashboard itself has the login, so that a logout is possible."""
    is_operator: bool = False
    """True if its key has no tenant: it may look at any."""

    @property
    def holder(self) -> str:
        """Form keys are bound to it: a form of one tenant's page does not act on another."""
        return f"{self.id} {self.tenant}"

    @property
    def is_anonymous(self) -> bool:
        """True for a visitor without a key, on a server without keys."""
        return self.own and self.key == ANONYMOUS


class Sessions:
    """Begins and finds the sessions of visitors."""

    def __init__(self, onefold: Onefold, secret: str, *, anonymous: bool) -> None:
        """`anonymous` accepts visitors of this machine while there are no API keys."""
        self._onefold = onefold
        self._anonymous = anonymous
        self._signer = ClockSigner([secret.encode()], "onefold.dashboard.session", self._now)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._onefold.context.now() / 1_000_000, UTC)

    def log_in(self, text: str) -> DashboardSession | None:
        """A session for the text of an API key; None if that may not open the dashboard."""
        key = self._onefold.api_keys.check(text.strip()).key
        return None if key is None else session_of(key, secrets.token_urlsafe(16))

    def find(self, incoming: Incoming) -> DashboardSession | None:
        """The session of a request; None if a login is needed.

        Raises `Refused` for a visitor without a key who is not on this machine.
        """
        session_id, key_id = self._read(cookie_of(incoming))
        if key_id not in {"", ANONYMOUS}:
            found = self.of_key(key_id, session_id)
            return found and at_tenant(found, incoming)
        if not self._anonymous or self._onefold.api_keys.exist():
            return None
        check_local(incoming.headers, incoming.client, incoming.version)
        session_id = session_id or secrets.token_urlsafe(16)
        session = DashboardSession(id=session_id, tenant="", role="admin", name="this machine")
        return at_tenant(session, incoming)

    def has_cookie(self, incoming: Incoming) -> bool:
        """Whether the request has a cookie that is valid: one of another server is not."""
        return bool(self._read(cookie_of(incoming))[0])

    def is_valid(self, session: DashboardSession) -> bool:
        """Whether a session that was found before is still accepted."""
        if session.is_anonymous:
            return not self._onefold.api_keys.exist()
        return self.of_key(session.key, session.id) is not None

    def of_key(self, key_id: str, session_id: str) -> DashboardSession | None:
        """The session of a key; None if the key is not valid any more."""
        try:
            key = self._onefold.api_keys.get(key_id)
        except InvalidInput:
            return None
        return None if key is None else session_of(key, session_id)

    def cookie(self, session: DashboardSession) -> str:
        """The value of the cookie of a session."""
        return self._signer.sign(f"{session.id}.{session.key}").decode()

    def _read(self, cookie: str) -> tuple[str, str]:
        """The ids of the session and of its key; empty if there is no valid cookie."""
        try:
            value, signed_at = self._signer.unsign(cookie, return_timestamp=True)
        except (BadSignature, UnicodeEncodeError):
            return "", ""
        if self._now() - signed_at > MAX_AGE:
            return "", ""
        session_id, _, key_id = value.decode().partition(".")
        return session_id, key_id


def session_of(key: ApiKey, session_id: str) -> DashboardSession | None:
    """The session of a valid key; None if it has neither the scope admin nor read."""
    if "admin" in key.scopes:
        role: Role = "admin"
    elif "read" in key.scopes:
        role = "read"
    else:
        return None
    name = key.name or key.id
    return DashboardSession(id=session_id, tenant=key.tenant, role=role, name=name, key=key.id)


def at_tenant(session: DashboardSession, incoming: Incoming) -> DashboardSession:
    """The session at the tenant that the operator has chosen; others stay at their own."""
    if session.tenant:
        return session
    try:
        chosen = checks.tenant(cookie_of(incoming, TENANT), "tenant")
    except InvalidInput:
        chosen = ""
    return replace(session, tenant=chosen, is_operator=True)


def cookie_of(incoming: Incoming, name: str = COOKIE) -> str:
    """The value of a cookie; empty if there is none."""
    # Not SimpleCookie, which reads nothing after a cookie of another application that it rejects.
    pairs = (
        pair.strip() for header in incoming.http.values("cookie") for pair in header.split(";")
    )
    # The first one: browsers begin with that of the longest path.
    found = next((pair for pair in pairs if pair.startswith(f"{name}=")), "")
    return found.partition("=")[2]


def set_cookie(value: str, incoming: Incoming, name: str = COOKIE) -> str:
    """The header that stores a cookie; an empty value deletes it."""
    age = int(MAX_AGE.total_seconds()) if value else 0
    secure = "; Secure" if incoming.secure else ""
    path = f"{incoming.root}/"
    return f"{name}={value}; Path={path}; Max-Age={age}; HttpOnly; SameSite=Lax{secure}"
