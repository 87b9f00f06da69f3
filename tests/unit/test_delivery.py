"""Deliveries: what a worker may ask for, and what it is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from onefold import Delivery, InvalidInput, LeaseLost
from onefold.model.delivery import (
    Ended,
    EndingStatus,
    Heartbeat,
    deliveries,
    encode_error,
    results_by_id,
    take_order,
)
from onefold.model.failure import TEXT_LENGTH
from onefold.model.ids import new_id
from onefold.model.json_text import decode_payload

MINUTE = timedelta(minutes=1)


def test_queues_are_served_in_order_each_up_to_the_limit() -> None:
    order = take_order(["b", "a"], limit=5, worker="w", lease=MINUTE)

    assert list(order.queues.items()) == [("b", 5), ("a", 5)]
    assert (order.limit, order.worker, order.lease) == (5, "w", 60_000_000)


def test_queues_may_have_limits_of_their_own() -> None:
    order = take_order({"b": 1, "a": 9}, limit=5, worker="w", lease=MINUTE)

    assert list(order.queues.items()) == [("b", 1), ("a", 9)]


@pytest.mark.parametrize(
    ("options", "field", "reason"),
    [
        ({"limit": 0}, "limit", "must be a whole number from 1 to 10000, got 0"),
        ({"limit": True}, "limit", "must be a whole number from 1 to 10000, got True"),
        ({"queues": "default"}, "queues", "must be a list of names, got 'default'"),
        ({"limit": 10_001}, "limit", "must be a whole number from 1 to 10000, got 10001"),
        ({"queues": 5}, "queues", "must be a list of names, got 5"),
        ({"queues": None}, "queues", "must be a list of names, got None"),
        ({"queues": [["a"]]}, "queues", "must be a string"),
        ({"queues": {"a": 10_001}}, "queues", "must give 'a' a whole number from 1 to 10000"),
        ({"queues": []}, "queues", "must name at least one queue"),
        ({"queues": ["a,b"]}, "queues", "must not contain ','"),
        ({"queues": {"a": 0}}, "queues", "must give 'a' a whole number from 1 to 10000, got 0"),
        ({"queues": {"a": 1.5}}, "queues", "must give 'a' a whole number from 1 to 10000, got 1.5"),
        ({"worker": None}, "worker", "must be a string"),
        ({"lease": timedelta(0)}, "lease", "must not be shorter than"),
    ],
)
def test_a_bad_order_is_refused_by_name(options: dict[str, Any], field: str, reason: str) -> None:
    good: dict[str, Any] = {"queues": ["a"], "limit": 1, "worker": "w", "lease": MINUTE}
    given = {**good, **options}

    with pytest.raises(InvalidInput) as caught:
        take_order(given.pop("queues"), **given)

    assert caught.value.field == field
    assert caught.value.reason.startswith(reason)


def test_deliveries_are_named_by_id_and_fence() -> None:
    job_id = new_id()

    assert deliveries([Delivery(job_id.upper(), 3)]) == [Delivery(job_id, 3)]


@pytest.mark.parametrize("fence", [None, "1", True, 2**63, -(2**63) - 1])
def test_a_fence_that_is_no_number_is_refused(fence: Any) -> None:
    with pytest.raises(InvalidInput, match="fence must be a whole number"):
        deliveries([Delivery(new_id(), fence)])


def test_an_id_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidInput) as caught:
        deliveries([Delivery(new_id(), 1), Delivery("7", 1)])

    assert (caught.value.field, caught.value.item) == ("id", 1)


def test_a_fence_of_64_bits_is_asked_about() -> None:
    for fence in (2**63 - 1, -(2**63)):
        assert deliveries([Delivery(new_id(), fence)])[0].fence == fence


@pytest.mark.parametrize("jobs", [None, "jobs", 5, Delivery("7", 1), {"id": 1}], ids=repr)
def test_what_is_no_list_of_deliveries_is_refused(jobs: Any) -> None:
    with pytest.raises(InvalidInput, match="jobs must be a list of taken jobs"):
        deliveries(jobs)


@pytest.mark.parametrize("job", [None, "7", ("7", 1)])
def test_what_is_no_delivery_is_named_by_its_item(job: Any) -> None:
    with pytest.raises(InvalidInput, match="item 1: jobs must hold jobs or deliveries") as caught:
        deliveries([Delivery(new_id(), 1), job])

    assert caught.value.item == 1


def test_results_are_stored_under_the_id_as_we_write_it() -> None:
    first, second = Delivery(new_id(), 1), Delivery(new_id(), 1)
    by_uuid: Any = {first.id.upper(): 1, UUID(second.id): [2]}

    assert results_by_id(by_uuid, [first, second]) == {first.id: "1", second.id: "[2]"}
    assert results_by_id(None, [first]) == {}


@pytest.mark.parametrize("results", [[], "results", {"typo": 1}, {new_id(): 1}, {None: 1}])
def test_results_that_belong_to_no_given_job_are_refused(results: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        results_by_id(results, [Delivery(new_id(), 1)])

    assert caught.value.field == "results"


@pytest.mark.parametrize("status", ["accepted", "already"])
def test_a_word_that_counted_passes_the_check(status: EndingStatus) -> None:
    Ended("1", 2, status, "completed").check()


def test_a_word_that_did_not_count_is_a_lost_lease() -> None:
    with pytest.raises(LeaseLost, match="job 1 is no longer held under fence 2") as caught:
        Ended("1", 2, "lost", None).check()

    assert caught.value.fence == 2


def test_a_beat_without_a_lease_is_lost() -> None:
    assert Heartbeat("1", 2, None).lost
    assert not Heartbeat("1", 2, datetime(2026, 3, 1, tzinfo=UTC)).lost


# --- failures -------------------------------------------------------------------------------------


class CardDeclined(Exception):
    """A failure with a name."""


def decoded(error: object) -> Any:
    text = encode_error(error)
    assert text is not None
    return decode_payload(text)


def test_no_failure_is_none() -> None:
    assert encode_error(None) is None


def test_an_exception_is_stored_with_its_type() -> None:
    assert decoded(CardDeclined("no funds")) == {
        "type": f"{__name__}.CardDeclined",
        "message": "no funds",
    }
    assert decoded(ValueError("no"))["type"] == "builtins.ValueError"


def test_a_sentence_is_stored_without_one() -> None:
    assert decoded("lost the network") == {"type": None, "message": "lost the network"}
    assert decoded(404) == {"type": None, "message": "404"}


def test_a_mapping_is_stored_as_it_is() -> None:
    assert decoded({"type": "http", "message": "gone", "status": 410}) == {
        "type": "http",
        "message": "gone",
        "status": 410,
    }


@pytest.mark.parametrize("text", ["a\x00b", "half \ud800", "\udfff"])
def test_a_failure_never_fails_to_be_stored_because_of_what_it_says(text: str) -> None:
    escaped = text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")

    assert decoded(ValueError(text))["message"] == escaped
    assert decoded({text: [text, {"deep": (text,)}]}) == {escaped: [escaped, {"deep": [escaped]}]}


def test_no_failure_has_a_nul_for_postgres_to_stumble_over() -> None:
    """`error::jsonb`, as in a look for a type of failure, would fail for every job."""
    assert "\\u0000" not in str(encode_error({"a\x00": {"b": ["\x00"]}, "c": "\x00"}))


def test_a_mapping_that_cannot_be_stored_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput) as caught:
        encode_error({"cause": object()})

    assert caught.value.field == "error"


def test_a_long_message_is_cut() -> None:
    message = decoded("x" * (TEXT_LENGTH + 1))["message"]

    assert message == "x" * TEXT_LENGTH + "…"
    assert decoded("x" * TEXT_LENGTH)["message"] == "x" * TEXT_LENGTH
