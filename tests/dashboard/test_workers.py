"""The page of workers."""

import asyncio
import os
import threading

import pytest
from playwright.sync_api import Page, expect

from onefold import Onefold
from onefold.model.queue import QueueSettings
from tests.dashboard.conftest import LogIn
from tests.dashboard.seed import Seeded, in_thread
from tests.dashboard.shop_day import save_workers
from tests.fixtures.colours import Dialect, Store
from tests.worker.stage import until, working

BOTH: list[Dialect] = ["sqlite", "postgres"]


@pytest.mark.parametrize("dialect", BOTH)
def test_a_worker_appears_with_the_job_that_it_runs_and_disappears_when_it_stops(
    store: Store, url: str, page: Page
) -> None:
    started, stop = threading.Event(), threading.Event()

    def work() -> None:
        onefold = store.open()

        @onefold.job
        def build_report() -> None:
            started.set()
            stop.wait(60)

        async def play() -> None:
            async with working(onefold, name="builder", concurrency=3):
                await build_report.aenqueue()
                await until(started.is_set)
                await until(stop.is_set, patience=60)
            await onefold.aclose()

        asyncio.run(play())

    thread = threading.Thread(target=work)
    thread.start()
    started.wait(30)
    try:
        page.goto(f"{url}/workers")
        row = page.locator("tbody tr")
        expect(row.locator(".badge")).to_have_text("alive")
        expect(row).to_contain_text("builder")
        expect(row).to_contain_text(f"process {os.getpid()}")
        expect(row).to_contain_text("1 of 3")
        expect(row.get_by_role("link", name="default")).to_be_visible()
        expect(row.get_by_role("link", name="build_report")).to_be_visible()
    finally:
        stop.set()
        thread.join()
    page.reload()
    expect(page.get_by_role("heading", name="No worker runs")).to_be_visible()
    expect(page.locator(".empty pre")).to_have_text("onefold worker MODULE:APP")


def test_the_job_of_a_worker_is_one_click_away(
    onefold: Onefold, seeded: Seeded, url: str, page: Page
) -> None:
    in_thread(lambda: save_workers(onefold))
    page.goto(f"{url}/workers")

    page.locator("tr", has_text="web-2:4711").get_by_role("link", name="render_invoice").click()

    page.wait_for_url(f"{url}/jobs/{seeded.running}")


def test_only_the_operator_sees_workers(
    onefold: Onefold, url: str, page: Page, log_in: LogIn
) -> None:
    in_thread(lambda: save_workers(onefold))
    log_in("read")
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Workers").click()
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.locator("main form")).to_have_count(0)
    page.get_by_role("button", name="Log out").click()

    log_in("admin", "acme")

    expect(page.get_by_role("link", name="Workers")).to_have_count(0)
    response = page.goto(f"{url}/workers")
    assert response is not None
    assert response.status == 403
    assert "web-1" not in page.content()


@pytest.mark.parametrize("dialect", BOTH)
def test_a_due_job_that_no_worker_takes_says_so_on_its_page_and_on_that_of_its_queue(
    onefold: Onefold, url: str, page: Page
) -> None:
    def made() -> str:
        onefold.queues.save("payments", QueueSettings())
        return onefold.enqueue("charge", queue="payments").id

    job = in_thread(made)
    missing = page.get_by_text("No worker that is alive takes")

    page.goto(f"{url}/jobs/{job}")
    expect(missing).to_contain_text("onefold worker MODULE:APP")
    page.goto(f"{url}/queues/payments")
    expect(missing).to_contain_text("onefold worker MODULE:APP")

    in_thread(lambda: save_workers(onefold))
    page.reload()
    expect(page.get_by_text("workers take its jobs")).to_be_visible()
    expect(missing).to_have_count(0)
    page.goto(f"{url}/jobs/{job}")
    expect(page.get_by_text("A worker that knows its kind takes it")).to_be_visible()
