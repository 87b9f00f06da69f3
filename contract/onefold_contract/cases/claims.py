"""Claims: a key is taken, settled or released."""

from typing import Any

import pytest

from onefold.errors import InvalidInput, LeaseLost
from onefold.model.claim import Claim, Mismatch, Replay, Won
from onefold_contract.cases.common import HOUR, MICROSECOND
from onefold_contract.subject import Subject

__all__ = ["TestClaims"]


def win(subject: Subject, key: str = "k", **options: Any) -> Claim:
    """Claim a key that must be free."""
    answer = subject.claim("import", key, **options)
    assert isinstance(answer, Won)
    return answer.claim


class TestClaims:
    """Claim, settle, release, on every subject."""

    def test_a_settled_key_replays_its_result(self, subject: Subject) -> None:
        claim = win(subject)
        subject.keys.settle(claim, {"rows": [1, 2, 3]})
        answer = subject.claim("import", "k")
        assert isinstance(answer, Replay)
        assert answer.result == {"rows": [1, 2, 3]}

    def test_a_released_key_is_free_and_its_first_holder_has_no_more_say(
        self, subject: Subject
    ) -> None:
        first = win(subject)
        assert subject.keys.release(first) is True
        second = win(subject)
        assert second.fence > first.fence
        assert subject.keys.release(first) is False
        with pytest.raises(LeaseLost):
            subject.keys.settle(first, "stale")
        subject.keys.settle(second, "fresh")
        answer = subject.claim("import", "k")
        assert isinstance(answer, Replay)
        assert answer.result == "fresh"

    def test_another_fingerprint_is_a_mismatch(self, subject: Subject) -> None:
        subject.keys.settle(win(subject, fingerprint="one"))
        assert isinstance(subject.claim("import", "k", fingerprint="two"), Mismatch)
        assert isinstance(subject.claim("import", "k", fingerprint="one"), Replay)

    def test_tenants_surfaces_scopes_and_keys_never_meet(self, subject: Subject) -> None:
        subject.keys.settle(win(subject))
        assert isinstance(subject.tenant("acme").claim("import", "k"), Won)
        assert isinstance(subject.claim("import", "k", surface="webhook"), Won)
        assert isinstance(subject.claim("export", "k"), Won)
        assert isinstance(subject.claim("import", "other"), Won)
        assert isinstance(subject.claim("import", "k"), Replay)

    def test_a_settled_key_is_remembered_as_long_as_it_was_told(self, subject: Subject) -> None:
        subject.keys.settle(win(subject, retention=HOUR))
        subject.clock.advance(HOUR - MICROSECOND)
        assert isinstance(subject.claim("import", "k"), Replay)
        subject.clock.advance(MICROSECOND)
        assert isinstance(subject.claim("import", "k"), Won)

    def test_a_sweep_forgets_what_is_over_and_nothing_else(self, subject: Subject) -> None:
        subject.keys.settle(win(subject, "over", retention=HOUR))
        subject.keys.settle(win(subject, "kept"))
        win(subject, "held")
        subject.clock.advance(HOUR)
        assert subject.deliveries.sweep() == 1
        assert isinstance(subject.claim("import", "kept"), Replay)
        assert not isinstance(subject.claim("import", "held"), Won)

    def test_erase_forgets_stored_answers(self, subject: Subject) -> None:
        subject.keys.settle(win(subject), {"card": "4242"})
        assert subject.keys.erase(key="k").claims == 1
        assert isinstance(subject.claim("import", "k"), Won)

    def test_a_result_that_cannot_be_stored_is_refused(self, subject: Subject) -> None:
        claim = win(subject)
        with pytest.raises(InvalidInput) as caught:
            subject.keys.settle(claim, float("nan"))
        assert caught.value.field == "result"
        subject.keys.settle(claim, 1)
