"""Ids: UUIDv7, made by the client, so that an answer never depends on who got there first.

    48 bits  milliseconds since the epoch
     4 bits  version, 7
    12 bits  a hash of the job's key, or random: its remainder is the job's shard, for ever
     2 bits  variant
    18 bits  a counter: order inside a millisecond
    44 bits  random

Ids that one process makes with one hash sort in the order in which they were made, and ids without
a key share one random hash per millisecond, so they do too. Ids with different hashes, made in the
same millisecond, do not: the hash stands before the counter.
"""

from __future__ import annotations

import os
import re
import time
from functools import lru_cache
from hashlib import blake2b, sha256
from threading import RLock
from typing import TYPE_CHECKING, Final
from uuid import UUID

from onefold.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HASHES: Final = 4096
"""How many values the hash in an id has: the largest number of shards."""

LOWEST_ID: Final = "00000000-0000-0000-0000-000000000000"
HIGHEST_ID: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"
"""Below and above every id."""

_RANDOM_DIGITS: Final = 11
_BLOCK: Final = 1024
_COUNTER_END: Final = 1 << 18
_VARIANT: Final = 0b10 << 18
_LAST: Final = (1 << 128) - 1
_BEGIN: Final = re.compile(r"[0-9a-fA-F]{8,32}")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class IdMaker:
    """Makes increasing ids, even if the clock stands still or goes back."""

    def __init__(self, clock: Callable[[], int] = time.time_ns) -> None:
        """`clock` returns nanoseconds since the epoch."""
        self._clock = clock
        self.reseed()

    def reseed(self) -> None:
        """Start anew: a forked child must not continue the sequence of its parent."""
        # Reentrant: a signal handler may make an id while one is being made.
        self._lock = RLock()
        self._pool: list[str] = []
        self._millisecond = -1
        self._counter = _COUNTER_END
        self._prefix = ""
        self._hash = ""

    def new(self, hash_: int | None = None) -> str:
        """A new id that carries the hash, or a random one."""
        if hash_ is not None and not 0 <= hash_ < HASHES:
            raise InvalidInput("hash", f"must be from 0 to {HASHES - 1}, got {hash_}")
        with self._lock:
            now = self._clock() // 1_000_000
            if now > self._millisecond:
                self._begin(now)
            else:
                self._counter += 1
                if self._counter >= _COUNTER_END:
                    # Ahead of the clock, which catches up.
                    self._begin(self._millisecond + 1)
            noise = self._noise()
            prefix = self._prefix
            count = f"{_VARIANT | self._counter:x}"
            hashed = self._hash if hash_ is None else f"{hash_:03x}"
        return f"{prefix}{hashed}-{count[:4]}-{count[4]}{noise}"

    def several(self, count: int) -> list[str]:
        """Ids that share one random hash, in order: for many jobs at once, at half the cost."""
        with self._lock:
            now = self._clock() // 1_000_000
            if now > self._millisecond:
                self._begin(now)
            elif self._counter + count >= _COUNTER_END:
                self._begin(self._millisecond + 1)
            first = (_VARIANT | self._counter) + 1
            self._counter += count
            stem = f"{self._prefix}{self._hash}"
        noise = os.urandom(6 * count).hex()
        counts = [f"{number:x}" for number in range(first, first + count)]
        return [
            f"{stem}-{c[:4]}-{c[4]}{noise[at : at + _RANDOM_DIGITS]}"
            for c, at in zip(counts, range(0, 12 * count, 12), strict=True)
        ]

    def _noise(self) -> str:
        if not self._pool:
            self._pool.extend(_random_digits())
        return self._pool.pop()

    def _begin(self, millisecond: int) -> None:
        text = f"{millisecond:012x}"
        self._prefix = f"{text[:8]}-{text[8:]}-7"
        self._millisecond = millisecond
        noise = int(self._noise()[:8], 16)
        # In the lower half, so that it can grow; random, for two processes in one millisecond.
        self._counter = noise & (_COUNTER_END // 2 - 1)
        # One for the whole millisecond: a batch without keys keeps its order.
        self._hash = f"{noise >> 20:03x}"


def _random_digits() -> Iterator[str]:
    """Random tails for many ids at once: one system call for each would cost more than the id."""
    digits = os.urandom(_RANDOM_DIGITS * 256).hex()
    return (
        digits[start : start + _RANDOM_DIGITS] for start in range(0, len(digits), _RANDOM_DIGITS)
    )


_maker: Final = IdMaker()
if hasattr(os, "register_at_fork"):  # pragma: no branch - Windows has no fork
    os.register_at_fork(after_in_child=_maker.reseed)


new_id: Final = _maker.new
"""A new id, 36 lower-case characters, with the given hash (0 to 4095) or a random one."""


def fresh_ids(count: int) -> Iterator[str]:
    """So many ids without a key, one after the other."""
    for start in range(0, count, _BLOCK):
        yield from _maker.several(min(_BLOCK, count - start))


def with_hash(job_id: str, digest: str) -> str:
    """The id with the hash of a key, from the `key_digest` of that key."""
    return f"{job_id[:15]}{digest[1:4]}{job_id[18:]}"


def parse_id(value: object, field: str = "id") -> str:
    """The id in our form, from text in any case or a `UUID`."""
    if isinstance(value, str):
        if _UUID.fullmatch(value):
            return value.lower()
    elif isinstance(value, UUID):
        return str(value)
    raise InvalidInput(field, f"must be a UUID, got {value!r}")


def id_range(value: object, field: str = "id") -> tuple[str, str]:
    """The ids below and above all ids that begin like `value`: an id, or its first digits."""
    digits = value.replace("-", "") if isinstance(value, str) else ""
    if not _BEGIN.fullmatch(digits):
        raise InvalidInput(field, f"must be a UUID or its first 8 or more digits, got {value!r}")
    below, above = int(digits.ljust(32, "0"), 16) - 1, int(digits.ljust(32, "f"), 16) + 1
    return str(UUID(int=max(below, 0))), str(UUID(int=min(above, _LAST)))


def enqueue_order(job_id: str) -> str:
    """The id without its hash: sorts in the order in which a process made the ids."""
    return job_id[:13] + job_id[19:]


def milliseconds_of(job_id: str) -> int:
    """When the id was made, in milliseconds since the epoch, by the clock of its process.

    Times that are compared across machines come from the clock of the database.
    """
    return int(job_id[:8] + job_id[9:13], 16)


def hash_of(job_id: str) -> int:
    """The 12 bits of hash in the id."""
    return int(job_id[15:18], 16)


def shard_of(job_id: str, shards: int) -> int:
    """The shard of the id."""
    if shards == 1:
        return 0
    return hash_of(job_id) % shard_count(shards)


def shard_count(value: object) -> int:
    """Check a number of shards."""
    if type(value) is not int or not 1 <= value <= HASHES:
        raise InvalidInput("shards", f"must be a whole number from 1 to {HASHES}, got {value!r}")
    return value


def hash12(*parts: str) -> int:
    """The 12 bits of a key for an id, from SHA-256, which PostgreSQL has, too."""
    return int(sha256(length_prefixed(*parts)).hexdigest()[1:4], 16)


def advisory_lock_key(*parts: str) -> int:
    """The advisory lock of a key on PostgreSQL: a signed 64-bit number."""
    digest = blake2b(length_prefixed(*parts), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def key_digest(first: bytes, last: bytes) -> str:
    """SHA-256 of parts that can be separated again; `first` are the `common_parts` of many keys."""
    return sha256(b"%b%d:%b" % (first, len(last), last)).hexdigest()


def length_prefixed(*parts: str) -> bytes:
    """The parts as bytes that can be separated again."""
    text = ""
    for part in parts:
        text += f"{len(part)}:{part}"
    if text.isascii():
        return text.encode()
    # A digest never fails: text that is not valid Unicode is rejected elsewhere, with its field.
    encoded = [part.encode("utf-8", "surrogatepass") for part in parts]
    return b"".join(b"%d:%b" % (len(part), part) for part in encoded)


common_parts: Final = lru_cache(maxsize=1024)(length_prefixed)
"""`length_prefixed` for what many keys begin with, such as a tenant and a kind."""
