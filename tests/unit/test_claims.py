"""Claim, settle, release, renew, guard and force, stepped by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from onefold import Busy, DatabaseBusy, LeaseLost
from onefold.claims import Claim, Mismatch, Replay, Unknown, Won
from onefold.model.claim import JOINED_RETRY, TAKEOVERS, ClaimKey, Holding, StoredClaim, Wanted
from onefold.model.timestamps import from_micros
from onefold.operations import claims
from onefold.operations.statement import Sql, Statement
from tests.fixtures.rows import NOW, SECOND
from tests.fixtures.steps import Steps

SQL = Sql("postgres")
SHARDED = Sql("postgres", shards=4)
KEY = ClaimKey("acme", "once", "import", "k")
PLACE = (0, "acme", "once", "import", "k")


def wanted(**fields: Any) -> Wanted:
    given: dict[str, Any] = {"key": KEY, "id": "me", "lease": SECOND, **fields}
    return Wanted(**given)


def looked(**fields: Any) -> list[tuple[Any, ...]]:
    """What find_claim answers; without fields, nobody has the key."""
    if not fields:
        return []
    row: dict[str, Any] = {
        "id": "claim-1",
        "owner": "owner-1",
        "state": 0,
        "fence": 7,
        "fingerprint": None,
        "takeover": 2,
        "lease_until": NOW + SECOND,
        "expires_at": None,
        "result": None,
        "now": NOW,
        **fields,
    }
    return [msgspec.structs.astuple(StoredClaim(**row))]


def one(outcome: str, **fields: Any) -> list[tuple[Any, ...]]:
    """What claim_one answers."""
    return [(outcome, *found) for found in looked(**{"state": 0, **fields})]


def held(key: ClaimKey = KEY, **fields: Any) -> Claim:
    given: dict[str, Any] = {
        "id": "claim-1",
        "owner": "me",
        "fence": 7,
        "lease_until": None,
        "guarantee": "at most once",
        **fields,
    }
    return Claim(key=key, **given)


def values(statement: Statement) -> dict[str, Any]:
    (row,) = statement.rows
    return dict(zip(statement.columns, row, strict=True))


# --- claim ----------------------------------------------------------------------------------------


def test_a_free_key_is_won_by_one_statement() -> None:
    run = Steps(claims.claim(SQL, wanted(takeover="rerun", keep=5, fingerprint="print")))

    statement = run.answer("claim_one", one("won", id="me", owner="me", fence=9))

    assert statement.parameters == {
        "shard": 0, "tenant": "acme", "surface": "once", "scope": "import", "key": "k",
        "id": "me", "takeover": 0, "lease": SECOND, "keep": 5, "fingerprint": "print",
        "lock": KEY.lock("onefold"), "shared": True,
    }  # fmt: skip
    assert (statement.alone, statement.waits) == (True, False)
    assert run.result == Won(
        Claim(KEY, "me", "me", 9, from_micros(NOW + SECOND), "at least once", resumed=False)
    )


def test_a_key_of_several_shards_is_claimed_by_a_plain_insert() -> None:
    run = Steps(claims.claim(SHARDED, wanted(takeover="rerun", keep=5, fingerprint="print")))

    lost = run.answer("insert_claims", [])
    run.answer("find_claim", looked())
    run.answer("try_claim_lock", [(True,)])
    run.answer("insert_claims", [("me", 9, NOW + SECOND)])

    assert values(lost) == {
        "shard": KEY.place(4)[0], "tenant": "acme", "surface": "once", "scope": "import",
        "key": "k", "id": "me", "state": 0, "takeover": 0, "lease": SECOND, "keep": 5,
        "fingerprint": "print", "result": None, "lock": KEY.lock("onefold"),
    }  # fmt: skip
    assert run.result == Won(
        Claim(KEY, "me", "me", 9, from_micros(NOW + SECOND), "at least once", resumed=False)
    )


def test_a_joined_claim_takes_the_advisory_lock_for_itself() -> None:
    run = Steps(claims.claim(SQL, wanted(lease=None)))

    insert = run.answer("claim_one", [])
    run.answer("find_claim", looked())
    again = run.asks("try_claim_lock")

    assert insert.parameters["shared"] is False
    assert insert.alone is False
    assert again.parameters == {"shared": False, "lock": KEY.lock("onefold")}


def test_a_joined_claim_that_is_won_has_no_lease() -> None:
    run = Steps(claims.claim(SQL, wanted(lease=None)))

    run.answer("claim_one", one("won", id="me", owner="me", lease_until=None))

    assert isinstance(run.result, Won)
    assert (run.result.claim.lease_until, run.result.claim.guarantee) == (None, "exactly once")


@pytest.mark.parametrize("is_seen", [True, False])
@pytest.mark.parametrize(
    ("stored", "kind"),
    [
        ({"state": 1, "result": "1"}, Replay),
        ({"fingerprint": "other"}, Mismatch),
        ({"lease_until": NOW + 1}, Busy),
        ({"lease_until": NOW}, Unknown),
        ({"owner": "me"}, Won),
    ],
)
def test_a_stored_claim_decides(stored: dict[str, Any], kind: type, *, is_seen: bool) -> None:
    run = Steps(claims.claim(SQL, wanted(fingerprint="mine")))

    if is_seen:
        run.answer("claim_one", one("found", **stored))
    else:
        run.answer("claim_one", [])
        run.answer("find_claim", looked(**stored))

    assert isinstance(run.result, kind)


def test_a_key_in_an_open_transaction_is_busy_at_once() -> None:
    run = Steps(claims.claim(SQL, wanted(lease=None)))

    run.answer("claim_one", one("open"))

    assert isinstance(run.result, Busy)
    assert (run.result.key, run.result.retry_after) == ("k", JOINED_RETRY)


def test_a_key_that_an_open_transaction_took_after_the_look_is_busy() -> None:
    run = Steps(claims.claim(SQL, wanted(lease=None)))

    run.answer("claim_one", [])
    run.answer("find_claim", looked())
    run.answer("try_claim_lock", [(False,)])

    assert isinstance(run.result, Busy)
    assert (run.result.key, run.result.retry_after) == ("k", JOINED_RETRY)


def test_a_key_that_an_open_transaction_is_taking_over_is_busy() -> None:
    run = Steps(claims.claim(SQL, wanted(lease=None)))

    run.answer("claim_one", one("found", state=2))
    run.answer("try_claim_lock", [(False,)])

    assert isinstance(run.result, Busy)


def test_an_answer_that_is_committed_needs_no_lock() -> None:
    run = Steps(claims.claim(SQL, wanted(lease=None)))

    run.answer("claim_one", one("found", state=1, result="1"))

    assert run.result == Replay(1, "claim-1")


def test_a_key_that_was_given_up_between_insert_and_look_means_one_more_round() -> None:
    run = Steps(claims.claim(SQL, wanted()))

    run.answer("claim_one", [])
    run.answer("find_claim", looked())
    run.answer("try_claim_lock", [(True,)])
    run.answer("claim_one", one("won", id="me", owner="me"))

    assert isinstance(run.result, Won)


def test_an_abandoned_claim_is_taken_if_it_still_is_as_it_was_seen() -> None:
    run = Steps(claims.claim(SQL, wanted(takeover="refuse", fingerprint="print")))

    run.answer("claim_one", one("found", takeover=0, lease_until=NOW - 1))
    run.answer("try_claim_lock", [(True,)])
    taken = run.answer("take_over_claims", [("me", 10, NOW + SECOND)])

    assert values(taken) == {
        "shard": 0, "tenant": "acme", "surface": "once", "scope": "import", "key": "k",
        "id": "me", "owner": "me", "state": 0, "takeover": 2, "lease": SECOND, "keep": None,
        "fingerprint": "print", "result": None, "seen_fence": 7, "seen_state": 0,
        "seen_owner": "owner-1",
    }  # fmt: skip
    assert isinstance(run.result, Won)
    assert (run.result.claim.id, run.result.claim.fence, run.result.claim.resumed) == (
        "me",
        10,
        False,
    )


def test_a_resumed_claim_keeps_its_id_so_that_its_steps_still_count() -> None:
    run = Steps(claims.claim(SQL, wanted(takeover="resume")))

    run.answer("claim_one", one("found", takeover=1, lease_until=NOW - 1))
    run.answer("try_claim_lock", [(True,)])
    taken = run.answer("take_over_claims", [("me", 10, NOW + SECOND)])

    assert (values(taken)["id"], values(taken)["owner"]) == ("claim-1", "me")
    assert isinstance(run.result, Won)
    assert (run.result.claim.id, run.result.claim.owner, run.result.claim.resumed) == (
        "claim-1",
        "me",
        True,
    )


def test_a_lost_takeover_means_one_more_round_and_eight_are_enough() -> None:
    run = Steps(claims.claim(SQL, wanted()))

    for _ in range(7):
        run.answer("claim_one", one("found", state=2))
        run.answer("try_claim_lock", [(True,)])
        run.answer("take_over_claims", [])
    run.answer("claim_one", one("found", state=2))
    run.answer("try_claim_lock", [(True,)])
    with pytest.raises(DatabaseBusy, match="the key 'k' changed hands 8 times while we looked"):
        run.answer("take_over_claims", [])


# --- after verify ---------------------------------------------------------------------------------


def test_what_verify_found_undone_is_taken_over_under_the_fence_that_was_seen() -> None:
    run = Steps(claims.take_over_unknown(SQL, wanted(), fence=7))

    run.answer("find_claim", looked(fence=7, lease_until=NOW - 1))
    taken = run.answer("take_over_claims", [("me", 8, NOW + SECOND)])

    assert values(taken)["seen_fence"] == 7
    assert run.result is not None
    assert (run.result.fence, run.result.resumed) == (8, False)


@pytest.mark.parametrize(
    "stored",
    [{}, {"fence": 8}, {"fence": 7, "state": 1}, {"fence": 7, "state": 2}],
    ids=["gone", "claimed again", "settled", "freed"],
)
def test_what_somebody_else_has_acted_on_is_left_alone(stored: dict[str, Any]) -> None:
    run = Steps(claims.take_over_unknown(SQL, wanted(), fence=7))

    run.answer("find_claim", looked(**stored))

    assert run.result is None


def test_a_takeover_that_somebody_else_won_is_none() -> None:
    run = Steps(claims.take_over_unknown(SQL, wanted(), fence=7))

    run.answer("find_claim", looked(fence=7))
    run.answer("take_over_claims", [])

    assert run.result is None


# --- settle, release, renew -----------------------------------------------------------------------


def test_a_result_is_settled_under_the_fence() -> None:
    run = Steps(claims.settle(SQL, [claims.Settlement(held(), '{"a":1}')]))

    statement = run.answer("settle_claim", [("me",)])

    assert tuple(statement.parameters.values()) == (*PLACE, "me", 7, '{"a":1}')
    assert run.result == [None]


def test_the_same_word_twice_counts_once() -> None:
    run = Steps(claims.settle(SQL, [claims.Settlement(held(), None)]))

    run.answer("settle_claim", [])
    run.answer("find_claim", looked(owner="me", state=1, fence=7))

    assert run.result == [None]


def test_many_results_are_settled_in_lock_order_a_statement_a_shard() -> None:
    keys = [ClaimKey("", "once", "", f"k{number * 7 % 24:02}") for number in range(24)]
    words = [claims.Settlement(held(key, owner=key.key), key.key) for key in keys]
    again = claims.Settlement(words[0].claim, "a second word")
    run = Steps(claims.settle(SHARDED, [*words, again]))

    for shard in range(4):
        statement = run.asks("settle_claims")
        assert {row[0] for row in statement.rows} == {shard}
        assert list(statement.rows) == sorted(statement.rows)
        assert all(row[5] == row[-1] for row in statement.rows)
        run.answer("settle_claims", [(row[5],) for row in statement.rows])

    assert run.result == [None] * 25


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"owner": "other", "state": 1, "fence": 7},
        {"owner": "me", "state": 1, "fence": 8},
        {"owner": "me", "state": 2, "fence": 7},
    ],
    ids=["gone", "another's", "fenced off", "released"],
)
def test_a_stale_word_raises(stored: dict[str, Any]) -> None:
    run = Steps(claims.settle(SQL, [claims.Settlement(held(), None)]))

    run.answer("settle_claim", [])
    with pytest.raises(LeaseLost, match="the key 'k' is no longer held under fence 7"):
        run.answer("find_claim", looked(**stored))


@pytest.mark.parametrize("strict", [False, True])
def test_keys_are_given_back_in_lock_order_a_statement_a_shard(*, strict: bool) -> None:
    keys = [ClaimKey("", "lock", "", f"k{number * 7 % 24:02}") for number in range(24)]
    given = [held(key, owner=key.key) for key in keys]
    run = Steps(claims.release(SHARDED, given, strict=strict))

    for shard in range(4):
        statement = run.asks("release_claims")
        assert {row[0] for row in statement.rows} == {shard}
        assert list(statement.rows) == sorted(statement.rows)
        assert statement.parameters == {"strict": strict}
        run.answer("release_claims", [(row[5],) for row in statement.rows if row[5] != "k03"])

    assert run.result == {key.key for key in keys} - {"k03"}


def test_a_lease_is_renewed_or_has_ended() -> None:
    for rows, until in (([("me", NOW + 5)], from_micros(NOW + 5)), ([], None)):
        run = Steps(claims.renew(SQL, held(), lease=5))
        statement = run.answer("renew_claims", rows)
        assert statement.rows == [(*PLACE, "me", 7, 5)]
        assert run.result == until


# --- guard and force ------------------------------------------------------------------------------


def test_a_guard_passes_the_holder() -> None:
    run = Steps(claims.guard(SQL, held()))

    statement = run.answer("guard_claim", [(7,)])

    assert statement.parameters == {
        "shard": 0, "tenant": "acme", "surface": "once", "scope": "import", "key": "k",
        "owner": "me", "fence": 7,
    }  # fmt: skip
    assert run.result is None


def test_a_guard_stops_everybody_else() -> None:
    run = Steps(claims.guard(SQL, held()))

    with pytest.raises(LeaseLost, match="once 'k' is no longer held under fence 7"):
        run.answer("guard_claim", [])


def test_an_operators_word_counts_whoever_has_the_key() -> None:
    for rows, done in (([(9,)], True), ([], False)):
        run = Steps(claims.force(SQL, KEY, Holding.SETTLED, result="1", fence=7))
        statement = run.answer("force_claims", rows)
        assert statement.rows == [(*PLACE, 1, "1", 7)]
        assert run.result is done


def test_who_has_lost_a_claim_cannot_leave_it_unknown() -> None:
    run = Steps(claims.abandon(SQL, held()))

    with pytest.raises(LeaseLost):
        run.answer("abandon_claims", [])


def test_a_claim_is_left_unknown_under_its_fence() -> None:
    run = Steps(claims.abandon(SQL, held()))

    statement = run.answer("abandon_claims", [("me",)])

    assert [row[-3:] for row in statement.rows] == [("me", 7, TAKEOVERS.index("refuse"))]
