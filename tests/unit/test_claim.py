"""What a stored claim means for an attempt that wants its key, in the order that matters."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from onefold import Busy, ConflictingOptions, InvalidInput
from onefold.claims import Claim, Mismatch, Replay, Unknown, Won
from onefold.model.claim import (
    RESULT_BYTES,
    ClaimKey,
    Guarantee,
    Holding,
    StoredClaim,
    TakeOver,
    Takeover,
    Wanted,
    claim_key,
    decide,
    decode_result,
    encode_result,
    refuse_leased_within,
    want,
)

NOW = 1_772_366_400_000_000
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = 1_000_000
KEY = ClaimKey("acme", "once", "import", "k")
RERUN, RESUME, REFUSE = 0, 1, 2


def found(**fields: Any) -> StoredClaim:
    row: dict[str, Any] = {
        "id": "claim-1",
        "owner": "owner-1",
        "state": Holding.HELD,
        "fence": 7,
        "fingerprint": None,
        "takeover": REFUSE,
        "lease_until": NOW + SECOND,
        "expires_at": None,
        "result": None,
        "now": NOW,
    }
    assert not fields.keys() - row.keys()
    return StoredClaim(*list({**row, **fields}.values()))


def wanted(**fields: Any) -> Wanted:
    given: dict[str, Any] = {"key": KEY, "id": "me", "lease": SECOND, **fields}
    return Wanted(**given)


# --- the order of the checks ----------------------------------------------------------------------


def test_an_expired_claim_counts_as_absent_whatever_else_it_says() -> None:
    seen = found(state=Holding.SETTLED, expires_at=NOW, result="1", owner="me", fingerprint="other")

    answer = decide(seen, wanted(fingerprint="mine"))

    assert answer == TakeOver(seen, "me", fresh=True)


def test_a_claim_is_remembered_until_the_moment_it_expires() -> None:
    before = found(state=Holding.SETTLED, expires_at=NOW + 1, result="1")

    assert decide(before, wanted()) == Replay(1, "claim-1")


def test_a_free_key_is_taken_whatever_else_it_says() -> None:
    seen = found(state=Holding.FREE, expires_at=NOW + SECOND, fingerprint="other")

    assert decide(seen, wanted(fingerprint="mine")) == TakeOver(seen, "me", fresh=True)


def test_only_settled_claims_expire() -> None:
    held = found(state=Holding.HELD, expires_at=NOW - SECOND)

    assert isinstance(decide(held, wanted()), Busy)


@pytest.mark.parametrize(("claim_id", "resumed"), [("me", False), ("claim-1", True)])
def test_an_attempt_whose_answer_was_lost_finds_its_own_claim(
    claim_id: str, *, resumed: bool
) -> None:
    """What it resumes was begun by another: its steps count all the same."""
    answer = decide(found(id=claim_id, owner="me", fence=9), wanted())

    assert answer == Won(
        Claim(
            key=KEY,
            id=claim_id,
            owner="me",
            fence=9,
            lease_until=AT + timedelta(seconds=1),
            guarantee="at most once",
            resumed=resumed,
        )
    )


@pytest.mark.parametrize("state", [Holding.HELD, Holding.SETTLED])
def test_another_request_is_told_so_before_it_is_replayed_or_told_to_wait(state: Holding) -> None:
    seen = found(state=state, fingerprint="theirs", result="1")

    assert decide(seen, wanted(fingerprint="mine")) == Mismatch("k", "theirs")


def test_another_request_is_told_so_even_after_the_first_vanished() -> None:
    seen = found(fingerprint="theirs", lease_until=NOW - 1, takeover=RERUN)

    assert decide(seen, wanted(fingerprint="mine")) == Mismatch("k", "theirs")


@pytest.mark.parametrize(("theirs", "mine"), [("same", "same"), (None, "mine"), ("theirs", None)])
def test_fingerprints_are_compared_only_where_both_have_one(
    theirs: str | None, mine: str | None
) -> None:
    seen = found(state=Holding.SETTLED, fingerprint=theirs, result='{"a":1}')

    assert decide(seen, wanted(fingerprint=mine)) == Replay({"a": 1}, "claim-1")


def test_a_settled_claim_is_replayed_even_where_it_still_has_a_lease() -> None:
    seen = found(state=Holding.SETTLED, lease_until=NOW + SECOND, result=None)

    assert decide(seen, wanted()) == Replay(None, "claim-1")


def test_a_held_claim_says_when_to_come_back() -> None:
    answer = decide(found(lease_until=NOW + 1), wanted())

    assert isinstance(answer, Busy)
    assert (answer.key, answer.retry_after) == ("k", timedelta(microseconds=1))


def test_a_claim_says_how_long_its_attempt_has_been_running() -> None:
    seen = msgspec.structs.replace(found(), created_at=NOW - 3 * SECOND)

    assert seen.running == timedelta(seconds=3)
    assert found().running == timedelta(0), "where nothing says when it began"


def test_a_lease_ends_at_its_moment() -> None:
    assert isinstance(decide(found(lease_until=NOW), wanted()), Unknown)


def test_the_stored_takeover_decides_and_not_the_newcomers() -> None:
    ended = {"lease_until": NOW - SECOND, "fence": 7}
    rerun, resume, refuse = (found(**ended, takeover=number) for number in (RERUN, RESUME, REFUSE))

    for word in ("rerun", "resume", "refuse"):
        attempt = wanted(takeover=word)
        assert decide(rerun, attempt) == TakeOver(rerun, "me", fresh=True)
        assert decide(resume, attempt) == TakeOver(resume, "claim-1", fresh=False)
        assert decide(refuse, attempt) == Unknown("k", 7, AT - timedelta(seconds=1))


def test_a_claim_of_a_lost_transaction_has_no_lease_to_wait_for() -> None:
    """Joined claims have none; only a broken restore could leave one held and committed."""
    assert decide(found(lease_until=None), wanted()) == Unknown("k", 7, None)


# --- keys -----------------------------------------------------------------------------------------


def test_a_key_is_checked_part_by_part() -> None:
    assert claim_key("acme", "once", "", "k") == ClaimKey("acme", "once", "", "k")
    for surface, scope, key, field in (
        ("a,b", "", "k", "surface"),
        ("once", "a\x00", "k", "scope"),
        ("once", None, "k", "scope"),
        ("once", "", "", "key"),
        ("once", "", 7, "key"),
    ):
        with pytest.raises(InvalidInput) as caught:
            claim_key("", surface, scope, key)
        assert caught.value.field == field


def test_a_place_begins_with_the_shard() -> None:
    assert KEY.place(1) == (0, "acme", "once", "import", "k")
    assert KEY.place(4) == (KEY.hash % 4, "acme", "once", "import", "k")
    assert {ClaimKey("", "once", "", str(n)).place(4)[0] for n in range(40)} == {0, 1, 2, 3}


def test_parts_of_a_key_never_run_into_each_other() -> None:
    one, other = ClaimKey("a", "b", "c", "d"), ClaimKey("a", "bc", "", "d")

    assert one.lock("onefold") != other.lock("onefold")
    assert one.lock("onefold") != one.lock("other")
    assert one.derived("x") != other.derived("x")


def test_a_derived_key_is_the_same_for_every_attempt_and_another_for_every_name() -> None:
    assert KEY.derived("charge") == ClaimKey("acme", "once", "import", "k").derived("charge")
    assert KEY.derived("charge") != KEY.derived("refund")


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lease", "takeover", "guarantee"),
    [
        (None, "rerun", "exactly once"),
        (None, "refuse", "exactly once"),
        (timedelta(seconds=1), "refuse", "at most once"),
        (timedelta(seconds=1), "rerun", "at least once"),
        (timedelta(seconds=1), "resume", "at least once"),
    ],
)
def test_the_settings_say_which_guarantee_they_give(
    lease: timedelta | None, takeover: Takeover, guarantee: Guarantee
) -> None:
    attempt = want(KEY, lease=lease, takeover=takeover)

    assert attempt.guarantee == guarantee
    assert attempt.joined == (lease is None)


def test_settings_are_stored_in_microseconds() -> None:
    attempt = want(
        KEY, lease=timedelta(seconds=1), retention=timedelta(seconds=2), fingerprint="print"
    )

    assert (attempt.lease, attempt.keep, attempt.fingerprint) == (SECOND, 2 * SECOND, "print")
    assert want(KEY, lease=None).keep is None


def test_every_attempt_has_a_name_of_its_own() -> None:
    assert want(KEY, lease=None).id != want(KEY, lease=None).id


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"takeover": "hope"}, "takeover"),
        ({"fingerprint": ""}, "fingerprint"),
        ({"lease": timedelta(0)}, "lease"),
        ({"retention": timedelta(0)}, "retention"),
        ({"retention": 60}, "retention"),
    ],
)
def test_a_bad_setting_is_refused_by_name(options: dict[str, Any], field: str) -> None:
    given: dict[str, Any] = {"lease": timedelta(seconds=1), **options}

    with pytest.raises(InvalidInput) as caught:
        want(KEY, **given)

    assert caught.value.field == field


def test_inside_a_callers_transaction_a_lease_means_nothing() -> None:
    refuse_leased_within(lease=None, takeover=None)
    with pytest.raises(ConflictingOptions, match=r"takeover is for leased claims; inside within"):
        refuse_leased_within(lease=None, takeover="rerun")


# --- results --------------------------------------------------------------------------------------


@pytest.mark.parametrize("result", [None, 1, "text", [1, {"a": None}], True, 0.5])
def test_a_result_comes_back(result: object) -> None:
    assert decode_result(encode_result(result)) == result


def test_no_result_is_none() -> None:
    assert decode_result(None) is None


@pytest.mark.parametrize("result", [object(), float("nan"), {1: {2, object()}}])
def test_a_result_that_cannot_be_stored_is_refused_by_name(result: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        encode_result(result)

    assert caught.value.field == "result"


def test_a_result_has_a_limit() -> None:
    assert encode_result("x" * (RESULT_BYTES - 2))
    with pytest.raises(InvalidInput, match="result must have at most 1048576 bytes, got 1048577"):
        encode_result("x" * (RESULT_BYTES - 1))


def test_answers_are_values() -> None:
    assert msgspec.structs.asdict(Unknown("k", 1, None)) == {"key": "k", "fence": 1, "since": None}
