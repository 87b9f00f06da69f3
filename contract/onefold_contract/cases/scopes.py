"""How long a key is held: every scope, alone and with a window."""

from typing import Any, Final

import pytest

from onefold_contract.cases.common import (
    DAY,
    HOUR,
    MICROSECOND,
    MOMENTS,
    WORDS,
    complete,
    kept,
)
from onefold_contract.subject import Subject

__all__ = ["TestHoldersScope", "TestKeysNeverReturn", "TestScopes", "TestWindows"]

WAITING: Final = {"queued"}
ACTIVE: Final = {"queued", "running", "retrying", "deferred", "handed back", "rescued"}
ALWAYS: Final = set(MOMENTS)
NEVER: Final[set[str]] = set()
WAYS_BACK: Final = ("retry", "defer", "hand back", "lapse")

WHILE: Final[dict[str, set[str]]] = {"queued": WAITING, "active": ACTIVE, "exists": ALWAYS}


class TestScopes:
    """`unique_while` and `unique_for`: at every moment of a job's life, is its key held?"""

    @pytest.mark.parametrize("moment", MOMENTS)
    @pytest.mark.parametrize("window", ["none", "open", "over"])
    @pytest.mark.parametrize("scope", ["default", *WHILE])
    def test_a_key_is_held_in_its_window_and_in_the_states_of_its_scope(
        self, subject: Subject, scope: str, window: str, moment: str
    ) -> None:
        """Given together, they hold until the later of the two ends."""
        options: Any = {} if scope == "default" else {"unique_while": scope}
        if window != "none":
            options["unique_for"] = HOUR
        # With a window alone, only time holds the key.
        by_default = ACTIVE if window == "none" else NEVER
        held = window == "open" or moment in WHILE.get(scope, by_default)
        first = subject.enqueue("email", unique_key="k", **options)
        MOMENTS[moment](subject)
        if window == "over":
            subject.clock.advance(HOUR)
        second = subject.enqueue("email", unique_key="k")
        assert second.duplicate is held
        assert (second.id == first.id) is held
        assert len(kept(subject, "k")) == (1 if held else 2)


class TestWindows:
    """`unique_for`: a half-open window that starts at the enqueue; no buckets."""

    @pytest.mark.parametrize("ends", [False, True])
    def test_it_is_over_so_long_after_the_enqueue_and_not_before(
        self, subject: Subject, *, ends: bool
    ) -> None:
        first = subject.enqueue("email", unique_key="k", unique_for=HOUR)
        subject.clock.advance(HOUR - MICROSECOND)
        if ends:
            complete(subject)
        assert subject.enqueue("email", unique_key="k").id == first.id
        subject.clock.advance(MICROSECOND)
        assert subject.enqueue("email", unique_key="k").inserted


class TestHoldersScope:
    """Rule 2: the scope of the holder decides, not the scope of the new request."""

    def test_a_newcomer_with_a_narrow_scope_meets_a_wide_holder(self, subject: Subject) -> None:
        first = subject.enqueue("email", unique_key="k", unique_while="exists")
        complete(subject)
        assert subject.enqueue("email", unique_key="k", unique_while="queued").id == first.id

    def test_a_newcomer_with_a_wide_scope_does_not_widen_the_holders(
        self, subject: Subject
    ) -> None:
        first = subject.enqueue("email", unique_key="k", unique_while="queued")
        assert subject.enqueue("email", unique_key="k", unique_while="exists").id == first.id
        subject.take_one()
        assert subject.enqueue("email", unique_key="k", unique_while="exists").inserted

    def test_a_newcomers_window_means_nothing_to_a_holder(self, subject: Subject) -> None:
        subject.enqueue("email", unique_key="k")
        assert subject.enqueue("email", unique_key="k", unique_for=DAY).duplicate
        complete(subject)
        assert subject.enqueue("email", unique_key="k", unique_for=DAY).inserted


class TestKeysNeverReturn:
    """Rule 7: a job can always return to the queue, and never takes a lost key back."""

    @pytest.mark.parametrize("way", WAYS_BACK)
    def test_a_job_goes_back_beside_the_one_that_has_its_key_now(
        self, subject: Subject, way: str
    ) -> None:
        first = subject.enqueue("email", unique_key="k", unique_while="queued")
        job = subject.take_one()
        second = subject.enqueue("email", unique_key="k", unique_while="queued")
        assert second.inserted
        WORDS[way](subject, job)
        assert subject.existing_job(first.id).state in {"ready", "scheduled", "retrying"}
        assert subject.enqueue("email", unique_key="k").id == second.id

    @pytest.mark.parametrize("way", WAYS_BACK)
    def test_an_active_key_is_kept_all_the_way(self, subject: Subject, way: str) -> None:
        first = subject.enqueue("email", unique_key="k")
        WORDS[way](subject, subject.take_one())
        assert subject.enqueue("email", unique_key="k").id == first.id
