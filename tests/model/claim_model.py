"""Claims as plain Python: what the engine is compared with. Written from the rules.

Times are whole seconds. Fences are the engine's own; the model only wants them to grow.
"""

from dataclasses import dataclass, field, replace
from typing import TypeAlias

Place: TypeAlias = tuple[str, str, str]
"""Surface, scope, key."""


@dataclass(frozen=True)
class Wish:
    """What an attempt asks for."""

    fingerprint: str | None = None
    lease: int = 60
    takeover: str = "refuse"
    retention: int | None = None


@dataclass(frozen=True)
class Said:
    """What an attempt is told. `detail` is the result, the seconds to wait, or since when."""

    answer: str
    detail: object = None


@dataclass(eq=False)
class Attempt:
    """One attempt that won a key; the machine keeps the engine's claim beside it."""

    place: Place
    id: str
    fence: int


@dataclass
class Entry:
    """What is kept of a key that somebody holds, or has settled."""

    attempt: Attempt | None
    """Who may settle it; None after an operator's word."""
    wish: Wish
    id: str
    fence: int
    lease_until: int
    settled: bool = False
    result: object = None
    expires_at: int | None = None


def _differ(known: str | None, given: str | None) -> bool:
    """Only two requests that both have a fingerprint can be told apart."""
    return known is not None and given is not None and known != given


@dataclass
class ClaimModel:
    """All keys, and the time."""

    now: int
    entries: dict[Place, Entry] = field(default_factory=dict[Place, Entry])
    highest: dict[Place, int] = field(default_factory=dict[Place, int])
    """The highest fence that a key has ever had, swept or not."""

    def live(self, place: Place) -> Entry | None:
        """The entry of a key; an expired one counts as absent at once."""
        entry = self.entries.get(place)
        if entry is None or not entry.settled or entry.expires_at is None:
            return entry
        return entry if self.now < entry.expires_at else None

    def ask(self, place: Place, wish: Wish) -> Said:
        """What a claim is told: expired, mismatch, replay, busy, takeover, in this order."""
        entry = self.live(place)
        if entry is None:
            return Said("won")
        if _differ(entry.wish.fingerprint, wish.fingerprint):
            return Said("mismatch")
        if entry.settled:
            return Said("replay", entry.result)
        if self.now < entry.lease_until:
            return Said("busy", entry.lease_until - self.now)
        if entry.wish.takeover == "refuse":
            return Said("unknown", entry.lease_until)
        return Said("won", entry.id if entry.wish.takeover == "resume" else None)

    def win(self, place: Place, wish: Wish, claim_id: str, fence: int) -> Attempt:
        """The attempt has the key, under a fence that grew."""
        assert fence > self.highest.get(place, 0)
        self.highest[place] = fence
        abandoned = self.entries.get(place)
        if abandoned is not None and not abandoned.settled:
            # Who says nothing about the request goes on with the one that was abandoned.
            wish = replace(wish, fingerprint=wish.fingerprint or abandoned.wish.fingerprint)
        attempt = Attempt(place, claim_id, fence)
        self.entries[place] = Entry(attempt, wish, claim_id, fence, self.now + wish.lease)
        return attempt

    def _held(self, attempt: Attempt) -> Entry | None:
        entry = self.entries.get(attempt.place)
        return entry if entry and entry.attempt is attempt and not entry.settled else None

    def settle(self, attempt: Attempt, result: object) -> bool:
        """False where the lease is lost. The same word twice counts once."""
        entry = self.entries.get(attempt.place)
        if entry is not None and entry.attempt is attempt and entry.settled:
            return True
        entry = self._held(attempt)
        if entry is None:
            return False
        self._close(entry, result)
        return True

    def _close(self, entry: Entry, result: object) -> None:
        keep = entry.wish.retention
        entry.settled, entry.result = True, result
        entry.expires_at = None if keep is None else self.now + keep

    def release(self, attempt: Attempt, *, strict: bool = False) -> bool:
        """False where it is no longer the attempt's. A lock's lease must not have ended either."""
        entry = self._held(attempt)
        if entry is None or (strict and entry.lease_until <= self.now):
            return False
        del self.entries[attempt.place]
        return True

    def renew(self, attempt: Attempt, lease: int) -> int | None:
        """A lease that has ended is not revived, and none is shortened."""
        entry = self._held(attempt)
        if entry is None or entry.lease_until <= self.now:
            return None
        entry.lease_until = max(entry.lease_until, self.now + lease)
        return entry.lease_until

    def holds(self, attempt: Attempt) -> bool:
        """Nobody has taken it over, ended lease or not."""
        return self._held(attempt) is not None

    def force_settle(self, place: Place, result: object) -> bool:
        """An operator's word: done. The holder is fenced off."""
        entry = self.live(place)
        if entry is None:
            return False
        entry.attempt = None
        self._close(entry, result)
        return True

    def force_release(self, place: Place) -> bool:
        """An operator's word: free."""
        if self.live(place) is None:
            return False
        del self.entries[place]
        return True

    def sweep(self) -> int:
        """Forget what has expired; never what is held or unknown."""
        over = [place for place in self.entries if self.live(place) is None]
        for place in over:
            del self.entries[place]
        return len(over)
