"""Deliveries: what a worker may ask for, and what it is told."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from onefold import Delivery, InvalidInput, LeaseLost
from onefold.model.delivery import (
    Ended,
    EndingStatus,
    deliveries,
    encode_error,
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


def test_a_fence_of_64_bits_is_asked_about() -> None:
    for fence in (2**63 - 1, -(2**63)):
        assert deliveries([Delivery(new_id(), fence)])[0].fence == fence


@pytest.mark.parametrize("status", ["accepted", "already"])
def test_a_word_that_counted_passes_the_check(status: EndingStatus) -> None:
    Ended("1", 2, status, "completed").check()


def test_a_word_that_did_not_count_is_a_lost_lease() -> None:
    with pytest.raises(LeaseLost, match="job 1 is no longer held under fence 2") as caught:
        Ended("1", 2, "lost", None).check()

    assert caught.value.fence == 2


# --- failures -------------------------------------------------------------------------------------


class CardDeclined(Exception):
    """A failure with a name."""


def decoded(error: object) -> Any:
    text = encode_error(error)
    assert text is not None
    return decode_payload(text)


def test_an_exception_is_stored_with_its_type() -> None:
    assert decoded(CardDeclined("no funds")) == {
        "type": f"{__name__}.CardDeclined",
        "message": "no funds",
    }
    assert decoded(ValueError("no"))["type"] == "builtins.ValueError"


def test_a_sentence_is_stored_without_one() -> None:
    assert decoded("lost the network") == {"type": None, "message": "lost the network"}
    assert decoded(404) == {"type": None, "message": "404"}


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
