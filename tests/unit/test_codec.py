"""The codec of the wire, and rules that only few requests reach."""

import pytest

from onefold.model import wire
from onefold.model.delivery import TakeOrder


def test_a_value_that_is_not_json_is_our_own_mistake() -> None:
    with pytest.raises(NotImplementedError, match="object cannot be written"):
        wire.encode(object())
    with pytest.raises(NotImplementedError, match="complex cannot be read"):
        wire._decode_hook(complex, 1)
    with pytest.raises(NotImplementedError):
        wire.schema_of(complex)


def test_without_a_taken_job_the_order_stays() -> None:
    order = TakeOrder(queues={"a": 2}, limit=2, worker="w", lease=1)

    assert order.without([]) is order


def test_a_body_that_nests_too_deeply_is_not_json() -> None:
    assert wire._malformed(b"[" * 100_000, "too deep").startswith("is not JSON: too deep")
