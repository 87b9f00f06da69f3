"""The codec of the wire, and rules that only few requests reach."""

import pytest

from onefold import NewJob, Unique
from onefold.model import wire
from onefold.model.delivery import TakeOrder
from onefold.model.new_job import prepare


def test_a_value_that_is_not_json_is_our_own_mistake() -> None:
    with pytest.raises(NotImplementedError, match="object cannot be written"):
        wire.encode(object())
    with pytest.raises(NotImplementedError, match="complex cannot be read"):
        wire._decode_hook(complex, 1)
    with pytest.raises(NotImplementedError):
        wire.schema_of(complex)


def test_names_that_differ_are_not_repeated() -> None:
    wire._members([("a", 1), ("b", 2)])


def test_a_key_may_be_made_by_a_function() -> None:
    rule = Unique(key=lambda kind, payload: f"{kind}/{payload['n']}")

    assert prepare(NewJob("k", {"n": 7}, unique=rule), "", now=0).request.unique_key == "k/7"


def test_without_a_taken_job_the_order_stays() -> None:
    order = TakeOrder(queues={"a": 2}, limit=2, worker="w", lease=1)

    assert order.without([]) is order


def test_a_body_that_nests_too_deeply_is_not_json() -> None:
    assert wire._malformed(b"[" * 100_000, "too deep").startswith("is not JSON: too deep")
