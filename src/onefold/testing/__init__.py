"""What tests of applications import: run jobs, deliver one twice, a clock that a test moves.

    from onefold.testing import drain

    def test_a_customer_is_welcomed_once() -> None:
        with onefold.override("sqlite:///test.db"):
            ...
            drain(onefold)

`pip install onefold[testing]` adds the fixtures `onefold`, `onefold_clock` and `onefold_worker` to
pytest. The contract suite of Onefold is a distribution of its own, `onefold-contract`.
"""

from onefold.testing.assertions import aassert_idempotent, assert_idempotent
from onefold.testing.clock import Clock
from onefold.testing.deliver import DeliveryResults, adeliver, deliver
from onefold.testing.jobs import (
    JobRunner,
    aassert_enqueued,
    adrain,
    aenqueued,
    arefute_enqueued,
    assert_enqueued,
    await_job,
    awipe,
    drain,
    enqueued,
    refute_enqueued,
    wait,
    wipe,
)
from onefold.testing.points import effect
from onefold.testing.report import Coverage, Finding, NotIdempotent
from onefold.testing.requests import RouteRequest, RouteResponse

__all__ = [
    "Clock",
    "Coverage",
    "DeliveryResults",
    "Finding",
    "JobRunner",
    "NotIdempotent",
    "RouteRequest",
    "RouteResponse",
    "aassert_enqueued",
    "aassert_idempotent",
    "adeliver",
    "adrain",
    "aenqueued",
    "arefute_enqueued",
    "assert_enqueued",
    "assert_idempotent",
    "await_job",
    "awipe",
    "deliver",
    "drain",
    "effect",
    "enqueued",
    "refute_enqueued",
    "wait",
    "wipe",
]
