"""Encryption of stored responses, and the error for one that cannot be read."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING, Final

from onefold.errors import InvalidInput, Needs, OnefoldError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_FORM: Final = "sealed1"
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12


class UnreadableAnswer(OnefoldError):
    """A stored response that this code cannot read: its request was carried out all the same."""

    def __init__(self, reason: str) -> None:
        """`reason` follows "A stored response"."""
        super().__init__(
            f"A stored response {reason}. Its request is not carried out again. Deploy the code and"
            " the keys that wrote it, or settle its key by hand.",
            reason=reason,
        )


class Sealing:
    """Encrypts with the current key and decrypts with any of its keys: AES-256-GCM.

    To rotate, add a key and make it the current one. Remove the old one after the retention, when
    no stored response needs it.
    """

    def __init__(self, keys: Mapping[str, bytes], *, current: str) -> None:
        """`keys` have 32 bytes each, by the id that is stored with the encrypted text."""
        if current not in keys:
            raise InvalidInput("current", f"must be the id of one of the keys, got {current!r}")
        for key_id, key in keys.items():
            if not key_id or ":" in key_id or "\0" in key_id:
                raise InvalidInput("keys", f"must have ids without a colon, got {key_id!r}")
            if len(key) != _KEY_BYTES:
                raise InvalidInput(
                    "keys", f"must have {_KEY_BYTES} bytes, and {key_id!r} has {len(key)}"
                )
        self._ciphers: dict[str, AESGCM] = {name: _cipher(key) for name, key in keys.items()}
        self._current: str = current

    def seal(self, text: str, *, place: str = "") -> str:
        """The encrypted text, with the id of the key in front.

        `place` is what it belongs to (a key and its scope). Text that was moved to another place
        cannot be decrypted there.
        """
        nonce = os.urandom(_NONCE_BYTES)
        head = f"{_FORM}:{self._current}:"
        sealed = self._ciphers[self._current].encrypt(nonce, text.encode(), _bound(head, place))
        return head + base64.b64encode(nonce + sealed).decode()

    def open(self, sealed: str, *, place: str = "") -> str:
        """The decrypted text; `UnreadableAnswer` if no key here decrypts it."""
        form, _, rest = sealed.partition(":")
        key_id, _, encoded = rest.partition(":")
        if form != _FORM:
            raise UnreadableAnswer("is not encrypted in a form that this code reads")
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            raise UnreadableAnswer("is encrypted with a key that this process does not have")
        try:
            box = base64.b64decode(encoded, validate=True)
        except ValueError:
            raise UnreadableAnswer("is encrypted, and damaged") from None
        return _opened(cipher, box, _bound(f"{_FORM}:{key_id}:", place))


def is_sealed(stored: object) -> bool:
    """True if a stored value was made by `seal`."""
    return isinstance(stored, str) and stored.startswith(f"{_FORM}:")


def _opened(cipher: AESGCM, box: bytes, bound: bytes) -> str:
    from cryptography.exceptions import InvalidTag

    try:
        return cipher.decrypt(box[:_NONCE_BYTES], box[_NONCE_BYTES:], bound).decode()
    except (InvalidTag, ValueError):
        raise UnreadableAnswer(
            "is encrypted, and was damaged, moved, or encrypted with another key of the same id"
        ) from None


def _bound(head: str, place: str) -> bytes:
    return f"{head}{place}".encode()


def _cipher(key: bytes) -> AESGCM:
    with Needs("onefold[webhooks]"):
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    return AESGCM(key)
