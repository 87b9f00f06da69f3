"""The report: what it says about a finding, about a passing check, and about wrong input."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from onefold import Defer, InvalidInput, Run, UsageError
from onefold.testing import NotIdempotent, assert_idempotent, effect, enqueued
from tests.testing.zoo import Shop

HERE = Path(__file__)


def _line(text: str) -> int:
    """The number of the one line that has this text."""
    (number,) = [
        number
        for number, line in enumerate(HERE.read_text("utf-8").splitlines(), start=1)
        if line.strip() == text
    ]
    return number


def _rows(shop: Shop) -> dict[str, Any]:
    tables = ("account", "payment", "receipt", "purchase", "visit")
    with shop.connect() as connection:
        found = {
            table: connection.execute(f"select * from {table} order by 1").fetchall()
            for table in tables
        }
    connection.close()
    return found


def test_a_doubled_effect(shop: Shop) -> None:
    @shop.onefold.job
    def bad(order_id: int) -> None:
        effect("charge", order_id)

    with pytest.raises(NotIdempotent) as caught:
        assert_idempotent(bad, 7)

    text = str(caught.value)
    number = _line('effect("charge", order_id)')
    assert text.startswith("The handler is not idempotent (2 crash points, ")
    assert (
        "Killed here, and delivered again:\n"
        f"  after \"effect 'charge'\" at {HERE}:{number}\n"
        '      effect("charge", order_id)\n'
        "  + effect, once too many: charge 7\n"
        "  What usually helps: give the receiver a key that is the same in every attempt,"
    ) in text
    assert text.endswith("  The same happens:\n    Delivered twice")


def test_a_lost_row(shop: Shop) -> None:
    @shop.onefold.job
    def bad() -> None:
        with shop.connect() as tx:
            sql = "update purchase set status = 'sent' where id = 7 and status = 'new'"
            is_new = tx.execute(sql).rowcount
        if is_new:
            with shop.connect() as tx:
                tx.execute("insert into receipt values (7, 'sent')")

    with pytest.raises(NotIdempotent) as caught:
        assert_idempotent(bad)

    lost = [each for each in caught.value.findings if each.scenario.startswith("Killed")]
    assert lost[0].differences[0].startswith("- row of receipt, once missing: ")
    assert lost[0].advice.startswith("commit everything that belongs together")


def test_one_bug_is_shown_once_with_the_other_points(shop: Shop) -> None:
    @shop.onefold.job
    def bad() -> None:
        for number in range(3):
            effect("mail", number)

    with pytest.raises(NotIdempotent) as caught:
        assert_idempotent(bad)
    text = str(caught.value)
    assert len(caught.value.findings) > 3
    assert text.count("What usually helps:") == 1
    # The crash with the fewest differences is the most telling one.
    assert text.count("+ effect, once too many: ") == 1
    assert (
        "  The same happens:\n    Delivered twice\n    Killed here: after \"effect 'mail'\" at "
        in (text)
    )


def test_a_passing_check_says_what_it_has_tried(shop: Shop) -> None:
    @shop.onefold.job
    def good() -> None:
        effect("mail", 7, key="7")

    coverage = assert_idempotent(good)

    assert (coverage.crash_points, coverage.skipped) == (2, 0)
    seconds = f"{coverage.seconds:.1f} s"
    assert str(coverage) == f"2 crash points, {coverage.deliveries} deliveries, {seconds}"


def test_a_sample_of_the_crash_points_says_so(shop: Shop) -> None:
    @shop.onefold.job
    def bad() -> None:
        for number in range(20):
            effect("mail", number)

    def found(seed: int) -> list[str]:
        with pytest.raises(NotIdempotent) as caught:
            assert_idempotent(bad, max_crash_points=5, seed=seed)
        assert "(5 crash points (16 more were not tried: see max_crash_points), " in str(
            caught.value
        )
        return [str(each) for each in caught.value.findings]

    assert found(1) == found(1)
    assert found(1) != found(2)


@pytest.mark.parametrize("fails", [False, True])
def test_the_database_is_as_it_was_before(shop: Shop, *, fails: bool) -> None:
    @shop.onefold.job
    def handler() -> None:
        with shop.connect() as tx:
            tx.execute("insert into payment (order_id, amount) values (1, 2)")
            tx.execute("update account set balance = 0")
        shop.onefold.enqueue("mail")
        if fails:
            raise ZeroDivisionError

    before = _rows(shop)
    with pytest.raises(ZeroDivisionError if fails else NotIdempotent):
        assert_idempotent(handler)

    assert _rows(shop) == before
    assert enqueued(shop.onefold) == []


def test_wrong_input_is_a_sentence(shop: Shop) -> None:
    @shop.onefold.job
    def job() -> None: ...

    def function(connection: Any) -> None: ...

    options: Any = {"max_crashes": 3}
    with pytest.raises(UsageError, match="needs the database of the handler: give database=URL"):
        assert_idempotent(function)
    with pytest.raises(InvalidInput, match=r"handler.* must be a job, a route or a function"):
        assert_idempotent(7, onefold=shop.onefold)
    with pytest.raises(UsageError, match="max_crashes"):
        assert_idempotent(job, **options)


def test_a_handler_that_does_nothing_proves_nothing(shop: Shop) -> None:
    @shop.onefold.job
    def idle() -> None: ...

    with pytest.raises(UsageError, match="proves nothing"):
        assert_idempotent(idle)


def test_work_that_is_deferred_without_end_after_a_crash_is_found(shop: Shop) -> None:
    @shop.onefold.job
    def wait_for_ever(run: Run) -> None:
        effect("mail", key=run.key("mail"))
        if run.attempt > 1:
            raise Defer(timedelta(seconds=1))

    with pytest.raises(NotIdempotent, match=r"the work does not end: .* busy or deferred"):
        assert_idempotent(wait_for_ever)
