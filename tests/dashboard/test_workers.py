"""The page of workers, and what other pages say of them."""

import asyncio
import os

from onefold import Onefold
from onefold.model.queue import QueueSettings
from tests.dashboard.shop_day import save_workers
from tests.dashboard.visiting import Visitor
from tests.fixtures.colours import Store
from tests.worker.stage import working


def test_a_worker_appears_with_the_job_that_it_runs_and_disappears_when_it_stops(
    store: Store, visit: Visitor
) -> None:
    onefold = store.open()

    async def play() -> None:
        started, stop = asyncio.Event(), asyncio.Event()

        @onefold.job
        async def build_report() -> None:
            started.set()
            await stop.wait()

        async with working(onefold, name="builder", concurrency=3):
            await build_report.aenqueue()
            await started.wait()
            await asyncio.to_thread(visit.open, "/workers")
            stop.set()
        await onefold.aclose()

    asyncio.run(play())

    (row,) = visit.page.all("tbody tr")
    assert row.one(".badge").text == "alive"
    for text in ("builder", f"process {os.getpid()}", "1 of 3", "default", "build_report"):
        assert text in row.text
    page = visit.open("/workers")
    assert page.one("main h2").text == "No worker runs"
    assert page.one(".empty pre").text == "onefold worker MODULE:APP"


def test_only_the_operator_sees_workers(onefold: Onefold, visit: Visitor) -> None:
    save_workers(onefold)
    visit.log_in("read")
    overview = visit.page.part("Workers")
    assert (overview.one(".figure").text, "web-1:3120" in overview.text) == ("2", True)
    visit.click("Workers")
    assert len(visit.page.keys) == 2
    assert visit.main.all("form") == []

    visit.log_in("admin", "acme")

    assert "Workers" not in visit.page.texts("nav a") + visit.page.texts("h2")
    visit.open("/workers")
    assert visit.status == 403
    assert "web-1" not in visit.page.raw


def test_a_due_job_that_no_worker_takes_says_so_on_its_page_and_on_that_of_its_queue(
    onefold: Onefold, visit: Visitor
) -> None:
    onefold.queues.save("payments", QueueSettings())
    job = onefold.enqueue("charge", queue="payments").id
    paths = (f"/jobs/{job}", "/queues/payments")

    alone = [visit.open(path).text for path in paths]
    save_workers(onefold)
    served = [visit.open(path).text for path in paths]

    for text in alone:
        assert "No worker that is alive takes" in text
        assert "onefold worker MODULE:APP" in text
    assert not [text for text in served if "No worker that is alive takes" in text]
    assert "A worker that knows its kind takes it" in served[0]
    assert "workers take its jobs" in served[1]
