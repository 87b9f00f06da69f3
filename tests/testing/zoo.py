"""Handlers with known bugs, and their correct twins."""

import asyncio
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeAlias
from uuid import uuid4

import msgspec

from onefold import Defer, Onefold, Run, is_unique_violation
from onefold.testing import effect

Handler: TypeAlias = Any
Pair: TypeAlias = tuple[Handler, Handler]


class Shop(msgspec.Struct):
    """The application that the handlers belong to."""

    onefold: Onefold
    connect: Callable[[], Any]
    mark: str
    """How the driver writes a parameter."""
    bank: str
    """The URL of a server that counts its requests."""

    def sql(self, text: str) -> str:
        return text.replace("?", self.mark)

    def pay(self, tx: Any, order_id: int) -> None:
        tx.execute(self.sql("insert into payment (order_id, amount) values (?, 5)"), (order_id,))

    def add_receipt(self, tx: Any, order_id: int, text: str = "paid") -> None:
        """Fails the second time."""
        tx.execute(self.sql("insert into receipt values (?, ?)"), (order_id, text))

    def keep_receipt(self, tx: Any, order_id: int) -> Any:
        insert = "insert into receipt values (?, 'paid') on conflict do nothing"
        return tx.execute(self.sql(insert), (order_id,))

    def has_receipt(self, tx: Any, order_id: int) -> bool:
        found = tx.execute(self.sql("select 1 from receipt where order_id = ?"), (order_id,))
        return found.fetchone() is not None

    def debit(self, tx: Any, account: int) -> None:
        change = "update account set balance = balance - 5 where id = ?"
        tx.execute(self.sql(change), (account,))

    def read_and_debit(self, tx: Any) -> None:
        (balance,) = tx.execute("select balance from account where id = 1").fetchone()
        tx.execute(self.sql("update account set balance = ? where id = 1"), (balance - 5,))

    def post(self, path: str, order_id: int, key: str | None = None) -> None:
        headers = {"idempotency-key": key} if key else {}
        request = urllib.request.Request(f"{self.bank}/{path}", b"%d" % order_id, headers)
        urllib.request.urlopen(request).close()


TABLES = (
    "create table account (id integer primary key, balance integer not null)",
    "create table payment (id {generated}, order_id integer not null, amount integer not null)",
    "create table receipt (order_id integer primary key, text text not null)",
    "create table purchase (id integer primary key, status text not null, log text not null)",
    "create table visit (page text primary key, count integer not null)",
    "insert into account values (1, 100), (2, 100)",
    "insert into purchase values (7, 'new', '')",
)

ZOO: dict[str, Callable[[Shop], Pair]] = {}


def animal(make: Callable[[Shop], Pair]) -> None:
    """Its two handlers are jobs of the shop, unless they are declared already."""

    def declared(shop: Shop) -> Pair:
        bad, good = make(shop)
        return (
            shop.onefold.job(bad),
            good if hasattr(good, "enqueue") else shop.onefold.job(good),
        )

    ZOO[make.__name__] = declared


@animal
def check_then_act(shop: Shop) -> Pair:
    def bad(order_id: int) -> None:
        with shop.connect() as tx:
            found = tx.execute(shop.sql("select 1 from payment where order_id = ?"), (order_id,))
            if found.fetchone() is None:
                shop.pay(tx, order_id)

    def good(order_id: int) -> None:
        with shop.connect() as tx:
            shop.keep_receipt(tx, order_id)

    return bad, good


@animal
def record_before_effect(shop: Shop) -> Pair:
    def bad(order_id: int) -> None:
        with shop.connect() as tx:
            stored = shop.keep_receipt(tx, order_id)
        if stored.rowcount:
            effect("mail", order_id, key=f"mail:{order_id}")

    def good(order_id: int) -> None:
        effect("mail", order_id, key=f"mail:{order_id}")
        with shop.connect() as tx:
            shop.keep_receipt(tx, order_id)

    return bad, good


@animal
def key_per_attempt(shop: Shop) -> Pair:
    def bad(order_id: int, run: Run) -> None:
        effect("charge", order_id, key=f"{order_id}:{run.attempt}")

    def good(order_id: int, run: Run) -> None:
        effect("charge", order_id, key=run.key("charge"))

    return bad, good


@animal
def swallowed_conflict(shop: Shop) -> Pair:
    def bad(order_id: int) -> None:
        try:
            with shop.connect() as tx:
                shop.add_receipt(tx, order_id)
        except Exception as error:
            if not is_unique_violation(error):
                raise
        with shop.connect() as tx:
            shop.debit(tx, 1)

    @shop.onefold.job(done_on=(is_unique_violation,))
    def good(order_id: int) -> None:
        with shop.connect() as tx:
            shop.add_receipt(tx, order_id)
            shop.debit(tx, 1)

    return bad, good


@animal
def commit_inside(shop: Shop) -> Pair:
    def bad(order_id: int) -> None:
        with shop.connect() as tx:
            shop.pay(tx, order_id)
            tx.commit()
            shop.keep_receipt(tx, order_id)

    def good(order_id: int, run: Run) -> None:
        with run.transaction() as tx:
            shop.pay(tx, order_id)
            shop.add_receipt(tx, order_id)

    return bad, good


@animal
def read_modify_write(shop: Shop) -> Pair:
    def bad() -> None:
        with shop.connect() as tx:
            shop.read_and_debit(tx)

    def good(run: Run) -> None:
        with run.transaction() as tx:
            shop.debit(tx, 1)

    return bad, good


@animal
def mail_inside_transaction(shop: Shop) -> Pair:
    def bad(order_id: int, run: Run) -> None:
        with run.transaction() as tx:
            shop.add_receipt(tx, order_id)
            effect("mail", order_id)

    def good(order_id: int, run: Run) -> None:
        with run.transaction() as tx:
            shop.add_receipt(tx, order_id)
            run.within().enqueue("mail", {"order": order_id})

    return bad, good


@animal
def once_per_delivery(shop: Shop) -> Pair:
    """The scope of a key is a delivery, and should be the order."""

    def bad(order_id: int, run: Run) -> None:
        with shop.onefold.once("mail", f"{order_id}:{run.fence}", takeover="rerun"):
            effect("mail", order_id)

    def good(order_id: int, run: Run) -> None:
        with shop.onefold.once("mail", str(order_id), takeover="rerun"):
            effect("mail", order_id, key=run.key("mail"))

    return bad, good


@animal
def late_writer(shop: Shop) -> Pair:
    """A delivery that lost its lease writes after its successor."""

    def bad(order_id: int) -> None:
        with shop.connect() as tx:
            is_new = not shop.has_receipt(tx, order_id)
        if is_new:
            with shop.connect() as tx:
                shop.debit(tx, 1)
                shop.keep_receipt(tx, order_id)

    def good(order_id: int, run: Run) -> None:
        with shop.connect() as tx:
            is_new = not shop.has_receipt(tx, order_id)
        if is_new:
            with run.transaction() as tx:
                shop.debit(tx, 1)
                shop.add_receipt(tx, order_id)

    return bad, good


@animal
def answer_lost_taken_for_failure(shop: Shop) -> Pair:
    def bad(order_id: int, run: Run) -> None:
        try:
            shop.post("charges", order_id, run.key("charge"))
            status = "paid"
        except OSError:
            status = "failed"
        with run.transaction() as tx:
            shop.add_receipt(tx, order_id, status)

    def good(order_id: int, run: Run) -> None:
        shop.post("charges", order_id, run.key("charge"))
        with run.transaction() as tx:
            shop.add_receipt(tx, order_id)

    return bad, good


@animal
def enqueue_apart(shop: Shop) -> Pair:
    def bad(order_id: int, run: Run) -> None:
        shop.onefold.enqueue("mail", {"order": order_id})
        with run.transaction() as tx:
            shop.add_receipt(tx, order_id)

    def good(order_id: int, run: Run) -> None:
        with run.transaction() as tx:
            shop.add_receipt(tx, order_id)
            run.within().enqueue("mail", {"order": order_id})

    return bad, good


@animal
def enqueue_without_publish_key(shop: Shop) -> Pair:
    def bad(order_id: int) -> None:
        shop.onefold.enqueue("mail", {"order": order_id})

    def good(order_id: int, run: Run) -> None:
        shop.onefold.enqueue("mail", {"order": order_id}, idempotency_key=run.key("mail"))

    return bad, good


@animal
def step_named_by_attempt(shop: Shop) -> Pair:
    def bad(order_id: int, run: Run) -> None:
        run.step(f"charge-{run.attempt}", effect, "charge", order_id)

    def good(order_id: int, run: Run) -> None:
        run.step("charge", effect, "charge", order_id, key=run.key("charge"))

    return bad, good


@animal
def lock_instead_of_key(shop: Shop) -> Pair:
    def bad(order_id: int) -> None:
        with shop.onefold.lock(f"order:{order_id}"):
            effect("charge", order_id)

    def good(order_id: int, run: Run) -> None:
        with shop.onefold.lock(f"order:{order_id}"):
            effect("charge", order_id, key=run.key("charge"))

    return bad, good


@animal
def insert_that_fails_the_second_time(shop: Shop) -> Pair:
    def bad(order_id: int) -> None:
        with shop.connect() as tx:
            shop.add_receipt(tx, order_id)

    def good(order_id: int) -> None:
        with shop.connect() as tx:
            shop.keep_receipt(tx, order_id)

    return bad, good


@animal
def deferred_after_the_work(shop: Shop) -> Pair:
    def bad(run: Run) -> None:
        with shop.connect() as tx:
            shop.debit(tx, 1)
        if run.attempt == 1:
            raise Defer(timedelta(seconds=1))

    def good(run: Run) -> None:
        with run.transaction() as tx:
            shop.debit(tx, 1)

    return bad, good


@animal
def own_retry_with_new_keys(shop: Shop) -> Pair:
    """A client with a retry loop of its own."""

    def charge(order_id: int, key_of: Callable[[int], str]) -> None:
        for number in range(3):
            with suppress(ConnectionError):
                shop.post("charges", order_id, key_of(number))
                return
        raise RuntimeError("the bank does not answer")

    def bad(order_id: int, run: Run) -> None:
        charge(order_id, lambda number: f"{run.key('charge')}-{number}")

    def good(order_id: int, run: Run) -> None:
        charge(order_id, lambda _: run.key("charge"))

    return bad, good


@animal
def outbox_with_random_ids(shop: Shop) -> Pair:
    insert = "insert into visit values (?, 1) on conflict do nothing"

    def bad() -> None:
        with shop.connect() as tx:
            tx.execute(shop.sql(insert), (str(uuid4()),))

    def good(run: Run) -> None:
        with shop.connect() as tx:
            tx.execute(shop.sql(insert), (run.key("outbox"),))

    return bad, good


@animal
def claim_before_the_work(shop: Shop) -> Pair:
    """`run.once` guards an empty block, and the effect comes after it."""

    def bad(order_id: int, run: Run) -> None:
        with run.once(f"mail-{order_id}"):
            pass
        effect("mail", order_id)

    def good(order_id: int, run: Run) -> None:
        with run.once(f"mail-{order_id}", takeover="rerun"):
            effect("mail", order_id, key=run.key("mail"))

    return bad, good


@animal
def savepoint_that_hides_the_conflict(shop: Shop) -> Pair:
    change = "update account set balance = balance - 5 where id = 1"
    insert = shop.sql("insert into receipt values (?, 'paid')")

    def attempt(tx: Any, order_id: int, *statements: str) -> None:
        tx.execute("savepoint paid")
        try:
            tx.execute(insert, (order_id,))
            for sql in statements:
                tx.execute(sql)
        except Exception as error:
            if not is_unique_violation(error):
                raise
            tx.execute("rollback to savepoint paid")

    def bad(order_id: int) -> None:
        with shop.connect() as tx:
            tx.execute(change)
            attempt(tx, order_id)

    def good(order_id: int) -> None:
        with shop.connect() as tx:
            if shop.mark == "?":
                tx.execute("begin immediate")
            attempt(tx, order_id, change)

    return bad, good


@animal
def tasks_without_keys(shop: Shop) -> Pair:
    async def send(number: int, key: str | None) -> None:
        await asyncio.sleep(0)
        effect("mail", number, key=key)

    async def bad() -> None:
        await asyncio.gather(*(send(number, None) for number in range(3)))

    async def good(run: Run) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(3):
                # Their order varies, so each step has a key.
                step = run.using(key=str(number)).astep
                tasks.create_task(step("mail", send, number, run.key(f"mail-{number}")))

    return bad, good
