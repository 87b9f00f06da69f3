"""An operator's calls about keys, over HTTP: look, ask why, free, settle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from onefold.calls.keys import KeyFilters
from onefold.client import wire
from onefold.client.flow import get, place, post
from onefold.model import checks
from onefold.model.json_text import encode_payload
from onefold.model.stored_key import KeyPage, Why

if TYPE_CHECKING:
    from onefold.client.flow import Ask, Flow


class ToldForced(wire.Said, frozen=True, kw_only=True):
    """Whether there was anything to do."""

    released: bool = False
    settled: bool = False


def keys(ask: Ask, filters: KeyFilters, *, limit: int, after: str | None) -> Flow[KeyPage]:
    """Stored keys."""
    checks.options(filters, KeyFilters.__optional_keys__)
    query = {**filters, "limit": limit, "after": after}
    reply = yield from ask(get(place("keys"), query))
    return wire.read(reply, KeyPage)


def why(
    ask: Ask,
    key: str,
    *,
    surface: str | None,
    scope: str | None,
    fingerprint: str | None,
    payload: Any,
) -> Flow[Why]:
    """Who has a key."""
    query = {
        "key": checks.key(key, "key"),
        "surface": surface,
        "scope": scope,
        "fingerprint": fingerprint,
        "payload": None if payload is msgspec.UNSET else encode_payload(payload),
    }
    reply = yield from ask(get("/v1/why", query))
    return wire.read(reply, Why)


def force_release(ask: Ask, scope: str, key: str, *, surface: str, step: str | None) -> Flow[bool]:
    """This key is free."""
    body = wire.said({"scope": scope, "step": step})
    reply = yield from ask(post(place("keys", surface, checks.key(key, "key"), "release"), body))
    return wire.read(reply, ToldForced).released


def force_settle(
    ask: Ask, scope: str, key: str, result: Any, *, surface: str, step: str | None
) -> Flow[bool]:
    """This key is done."""
    stored = None if result is None else msgspec.Raw(encode_payload(result).encode())
    body = wire.said({"scope": scope, "result": stored, "step": step})
    reply = yield from ask(post(place("keys", surface, checks.key(key, "key"), "settle"), body))
    return wire.read(reply, ToldForced).settled
