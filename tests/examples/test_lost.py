"""Handlers of the examples whose partner executes the order, and whose answer is then lost."""

import socket
from types import ModuleType

import pytest

from onefold import Run
from tests.examples.deaths import work
from tests.examples.stories import STORIES, Story, World, ready
from tests.examples.test_delivered import LEASE

CALLING = [story for story in STORIES if story.kind in {"charge", "refund", "buy_label"}]
ATTEMPTS = {"charge": 3, "refund": 1, "buy_label": 1}
"""The bank that remembers keys is asked again; the others are asked what has become of it."""


@pytest.mark.parametrize("story", CALLING, ids=str)
def test_a_call_whose_answer_is_lost_has_its_effect_once(
    story: Story, world: World, handlers: ModuleType
) -> None:
    world.partner.loses = 2
    job_id = ready(story, world, handlers, 1)

    work(world, [job_id])

    job = handlers.onefold.get(job_id)
    assert (job.state, job.attempt) == ("completed", ATTEMPTS[story.kind])
    assert story.effects(world, 1, job_id) == story.once


def test_a_bank_that_refuses_the_connection_has_done_nothing(
    world: World, handlers: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not asked: the step is given back, and the next attempt makes the call."""
    enqueued = handlers.third_party_key.refund.enqueue(order_id=1, cents=1990)
    (job,) = handlers.onefold.deliveries.take(worker="test", lease=LEASE)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setenv("PARTNER_URL", f"http://127.0.0.1:{port}")
    run = Run(handlers.onefold.context, job, lease=LEASE, worker="test")

    with pytest.raises(ConnectionRefusedError):
        handlers.third_party_key.refund.function(run, order_id=1, cents=1990)

    (step,) = handlers.onefold.deliveries.steps(enqueued.id)
    assert step.state == "retrying"
