"""Ed25519 keys of Standard Webhooks: `whpk_…` verifies, `whsk_…` signs. Needs onefold[webhooks]."""

from __future__ import annotations

from typing import Final

from onefold.errors import InvalidInput, Needs

with Needs("onefold[webhooks]"):
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

HALF: Final = 32


def public_key(key: bytes) -> Ed25519PublicKey:
    """A key that verifies."""
    if len(key) != HALF:
        raise InvalidInput("secret", f"whpk_ must have {HALF} bytes, got {len(key)}")
    return Ed25519PublicKey.from_public_bytes(key)


def private_key(key: bytes) -> Ed25519PrivateKey:
    """A key that signs: the private half, or the private and the public one."""
    if len(key) not in (HALF, 2 * HALF):
        raise InvalidInput("secret", f"whsk_ must have {HALF} or {2 * HALF} bytes, got {len(key)}")
    made = Ed25519PrivateKey.from_private_bytes(key[:HALF])
    if key[HALF:] not in (b"", made.public_key().public_bytes_raw()):
        raise InvalidInput("secret", "whsk_ must end with the public half of its own private one")
    return made


def verifying_key(kind: str, key: bytes) -> Ed25519PublicKey:
    """The public key of a `whpk` or a `whsk`."""
    return public_key(key) if kind == "whpk" else private_key(key).public_key()


def is_signed(key: Ed25519PublicKey, signature: bytes, content: bytes) -> bool:
    """True if a signature is of this key and this content."""
    try:
        key.verify(signature, content)
    except InvalidSignature:
        return False
    return True
