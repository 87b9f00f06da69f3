"""The gauges of queues at `/metrics`."""

import re
from datetime import timedelta

import pytest

from onefold import Queue, QueueCounts
from onefold.server import metrics
from onefold.telemetry.prometheus import MOST_LABELS
from tests.fixtures.colours import Clock, Store
from tests.fixtures.served import Api

_LINE = re.compile(r"^onefold_queue_(\S+) (\S+)$", re.MULTILINE)


async def gauges(api: Api) -> dict[str, float]:
    reply = await api("GET", "/metrics")
    assert reply.status == 200, reply.body
    return {name: float(value) for name, value in _LINE.findall(reply.body.decode())}


async def test_depth_age_and_running_jobs_of_each_queue(api: Api, clock: Clock) -> None:
    await api.queue("payments")
    await api.queue("empty")
    for _ in range(3):
        await api.publish()
    await api.publish(delay=3600)
    clock.advance(timedelta(seconds=90))
    await api.publish()
    await api.take()

    seen = await gauges(api)

    assert {name: value for name, value in seen.items() if "payments" in name} == {
        'depth{queue="payments",state="ready"}': 3,
        'depth{queue="payments",state="scheduled"}': 1,
        'oldest_ready_seconds{queue="payments"}': 90,
        'running{queue="payments"}': 1,
    }


async def test_queues_of_several_tenants_are_one(store: Store, clock: Clock) -> None:
    onefold = store.open(clock=clock)
    for tenant in ("acme", "globex", ""):
        calls = onefold.tenant(tenant) if tenant else onefold
        queue = f"{{{tenant}}}payments" if tenant else "payments"
        await calls.aenqueue("charge", queue=queue)
        clock.advance(timedelta(seconds=10))

    seen = await gauges(Api(onefold))

    assert seen['depth{queue="payments",state="ready"}'] == 3
    assert seen['oldest_ready_seconds{queue="payments"}'] == 30
    assert not [name for name in seen if "acme" in name]


def test_queues_without_end_make_no_series_without_end() -> None:
    queues = [
        Queue(name=f"{number:04}", counts=QueueCounts(ready=1)) for number in range(MOST_LABELS + 5)
    ]

    depth, *_ = metrics.queue_gauges(queues)

    ready = [sample for sample in depth.samples if sample.labels["state"] == "ready"]
    found = {sample.labels["queue"]: sample.value for sample in ready}
    assert len(found) == MOST_LABELS + 1
    assert found["other"] == 5


async def test_a_scrape_does_not_wait_for_a_count_that_takes_too_long(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.queue("payments")
    monkeypatch.setattr(metrics, "PATIENCE", 0.0)

    assert await gauges(api) == {}
