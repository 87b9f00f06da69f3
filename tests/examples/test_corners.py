"""What single examples say of themselves, beyond having their effect once."""

from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

from onefold import Busy
from tests.examples.deaths import work
from tests.examples.stories import World
from tests.examples.test_delivered import Deliveries


def test_a_product_is_found_by_the_name_that_it_has_when_the_job_runs(
    world: World, handlers: ModuleType
) -> None:
    with world.place.transaction() as connection:
        connection.execute("insert into product (id, name) values (7, 'Tea')")
    handlers.upsert.index_product(7)
    enqueued = handlers.upsert.index_product.enqueue(7)
    with world.place.transaction() as connection:
        connection.execute("update product set name = 'Coffee' where id = 7")

    work(world, [enqueued.id])

    assert world.rows("select words from search_entry") == [("coffee",)]


def test_a_run_that_finds_the_job_locked_comes_back_later(
    world: World, handlers: ModuleType
) -> None:
    enqueued = handlers.lock.build_report.enqueue("today")
    deliveries = Deliveries(handlers)
    job = deliveries.take()

    with handlers.onefold.lock(f"build_report:{enqueued.id}"), ThreadPoolExecutor(1) as another:
        run = another.submit(deliveries.run, job)
        assert isinstance(run.exception(), Busy)

    deliveries.run(job)
    assert world.rows("select count(*) from report_line") == [(3,)]


def test_an_event_that_comes_as_two_jobs_is_credited_once(
    world: World, handlers: ModuleType
) -> None:
    with world.place.transaction() as connection:
        connection.execute("insert into account (id, cents) values (1, 0)")
    jobs = [handlers.ledger.credit_event.enqueue("evt_9", 1, 700).id for _ in range(2)]

    work(world, jobs)

    assert world.rows("select cents from account") == [(700,)]


def test_a_label_is_given_to_everybody_who_asked_for_it(world: World, handlers: ModuleType) -> None:
    first, second = (handlers.cached_result.buy_label.enqueue(1) for _ in range(2))

    work(world, [first.id])

    assert first.result() == second.result() == "labels-1"
