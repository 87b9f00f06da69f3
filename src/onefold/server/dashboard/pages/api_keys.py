"""API keys: list, create, revoke. The operator sees all of them, a tenant its own."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from onefold.errors import InvalidInput
from onefold.model.api_key import SCOPES
from onefold.server.dashboard.page import Page, PageRequest, PageTable, Redirect

if TYPE_CHECKING:
    from onefold.model.api_key import ApiKey

PAGES: Final = PageTable()

PATH: Final = "/api-keys"
MEANINGS: Final = {
    "read": "look at everything except secrets",
    "publish": "publish, and read jobs",
    "work": "what a worker does",
    "admin": "everything",
}
DURATIONS: Final = {"30 days": 30, "90 days": 90, "1 year": 365}
REPEATED: Final = (
    "The key was created, but its text is not stored. If you have not seen it, revoke the key and"
    " create another."
)


@PAGES.get(PATH)
def list_api_keys(request: PageRequest) -> Page:
    """All keys, the newest first, and the form for a new one."""
    now = request.onefold.context.now() / 1_000_000
    keys = _keys(request)[::-1]
    values = {
        "keys": [(key, _state(key, now)) for key in keys],
        "scopes": [(scope, MEANINGS[scope]) for scope in SCOPES],
        "durations": tuple(DURATIONS),
    }
    return Page("api_keys.html", values)


def _keys(request: PageRequest) -> list[ApiKey]:
    """The keys that the visitor may see."""
    return request.onefold.api_keys.find(request.session.tenant or None)


def _state(key: ApiKey, now: float) -> str:
    if key.revoked_at is not None:
        return "revoked"
    is_over = key.expires_at is not None and key.expires_at.timestamp() <= now
    return "expired" if is_over else "active"


@PAGES.action(PATH)
def create_api_key(request: PageRequest) -> Page:
    """Create a key. Only this response has its text: a repeat says that the key exists."""
    form = request.form
    scopes: Any = request.values("scope")
    if not scopes:
        raise InvalidInput("scopes", "are missing: choose one or more")
    days = DURATIONS.get(form.get("expires", ""))
    made = request.onefold.api_keys.create(
        request.session.tenant or form.get("tenant", "").strip(),
        scopes=scopes,
        name=form.get("name", "").strip(),
        rate=form.get("rate", "").strip() or None,
        expires_in=None if days is None else timedelta(days=days),
    )
    return Page(
        "new_api_key.html",
        {"key": made.key, "text": made.text},
        repeated=Redirect(PATH, REPEATED, failed=True),
    )


@PAGES.action(f"{PATH}/revoke")
def revoke_api_key(request: PageRequest) -> Redirect:
    """Revoke a key at once and for good."""
    key_id = request.form.get("id", "")
    if key_id not in {key.id for key in _keys(request)}:
        raise InvalidInput("id", "is not the id of an API key of yours")
    changed = request.onefold.api_keys.revoke(key_id)
    return Redirect(PATH, "The key is revoked." if changed else "The key was revoked before.")
