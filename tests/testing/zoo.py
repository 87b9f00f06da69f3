"""Handlers with known bugs; without `is_bad`, each is its correct twin."""

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
"""A function, or a job that is declared already."""


Make: TypeAlias = Callable[..., Handler]
"""Makes a handler of a shop, bad or good."""


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

ZOO: dict[str, Make] = {}


def animal(make: Make) -> None:
    ZOO[make.__name__] = make


@animal
def check_then_act(shop: Shop, *, is_bad: bool) -> Handler:
    def handler(order_id: int) -> None:
        with shop.connect() as tx:
            if not is_bad:
                shop.keep_receipt(tx, order_id)
                return
            found = tx.execute(shop.sql("select 1 from payment where order_id = ?"), (order_id,))
            if found.fetchone() is None:
                shop.pay(tx, order_id)

    return handler


@animal
def record_before_effect(shop: Shop, *, is_bad: bool) -> Handler:
    def handler(order_id: int) -> None:
        if not is_bad:
            effect("mail", order_id, key=f"mail:{order_id}")
        with shop.connect() as tx:
            stored = shop.keep_receipt(tx, order_id)
        if is_bad and stored.rowcount:
            effect("mail", order_id, key=f"mail:{order_id}")

    return handler


@animal
def key_per_attempt(shop: Shop, *, is_bad: bool) -> Handler:
    def handler(order_id: int, run: Run) -> None:
        key = f"{order_id}:{run.attempt}" if is_bad else run.key("charge")
        effect("charge", order_id, key=key)

    return handler


@animal
def swallowed_conflict(shop: Shop, *, is_bad: bool) -> Handler:
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

    return bad if is_bad else good


@animal
def commit_inside(shop: Shop, *, is_bad: bool) -> Handler:
    def handler(order_id: int, run: Run) -> None:
        with shop.connect() if is_bad else run.transaction() as tx:
            shop.pay(tx, order_id)
            if is_bad:
                tx.commit()
            shop.keep_receipt(tx, order_id)

    return handler


@animal
def read_modify_write(shop: Shop, *, is_bad: bool) -> Handler:
    def bad() -> None:
        with shop.connect() as tx:
            shop.read_and_debit(tx)

    def good(run: Run) -> None:
        with run.transaction() as tx:
            shop.debit(tx, 1)

    return bad if is_bad else good


@animal
def mail_inside_transaction(shop: Shop, *, is_bad: bool) -> Handler:
    def handler(order_id: int, run: Run) -> None:
        with run.transaction() as tx:
            shop.add_receipt(tx, order_id)
            if is_bad:
                effect("mail", order_id)
            else:
                run.within().enqueue("mail", {"order": order_id})

    return handler


@animal
def once_per_delivery(shop: Shop, *, is_bad: bool) -> Handler:
    """The scope of a key is a delivery, and should be the order."""

    def handler(order_id: int, run: Run) -> None:
        key = f"{order_id}:{run.fence}" if is_bad else str(order_id)
        with shop.onefold.once("mail", key, takeover="rerun"):
            effect("mail", order_id, key=None if is_bad else run.key("mail"))

    return handler


@animal
def late_writer(shop: Shop, *, is_bad: bool) -> Handler:
    """A delivery that lost its lease writes after its successor."""

    def handler(order_id: int, run: Run) -> None:
        with shop.connect() as tx:
            is_new = not shop.has_receipt(tx, order_id)
        if is_new:
            with shop.connect() if is_bad else run.transaction() as tx:
                shop.debit(tx, 1)
                shop.keep_receipt(tx, order_id)

    return handler


@animal
def answer_lost_taken_for_failure(shop: Shop, *, is_bad: bool) -> Handler:
    def handler(order_id: int, run: Run) -> None:
        status = "paid"
        try:
            shop.post("charges", order_id, run.key("charge"))
        except OSError:
            if not is_bad:
                raise
            status = "failed"
        with run.transaction() as tx:
            shop.add_receipt(tx, order_id, status)

    return handler


@animal
def enqueue_apart(shop: Shop, *, is_bad: bool) -> Handler:
    def handler(order_id: int, run: Run) -> None:
        if is_bad:
            shop.onefold.enqueue("mail", {"order": order_id})
        with run.transaction() as tx:
            shop.add_receipt(tx, order_id)
            if not is_bad:
                run.within().enqueue("mail", {"order": order_id})

    return handler


@animal
def enqueue_without_publish_key(shop: Shop, *, is_bad: bool) -> Handler:
    def handler(order_id: int, run: Run) -> None:
        key = None if is_bad else run.key("mail")
        shop.onefold.enqueue("mail", {"order": order_id}, idempotency_key=key)

    return handler


@animal
def step_named_by_attempt(shop: Shop, *, is_bad: bool) -> Handler:
    def handler(order_id: int, run: Run) -> None:
        name = f"charge-{run.attempt}" if is_bad else "charge"
        run.step(name, effect, "charge", order_id, key=None if is_bad else run.key("charge"))

    return handler


@animal
def lock_instead_of_key(shop: Shop, *, is_bad: bool) -> Handler:
    def handler(order_id: int, run: Run) -> None:
        with shop.onefold.lock(f"order:{order_id}"):
            effect("charge", order_id, key=None if is_bad else run.key("charge"))

    return handler


@animal
def insert_that_fails_the_second_time(shop: Shop, *, is_bad: bool) -> Handler:
    def handler(order_id: int) -> None:
        with shop.connect() as tx:
            add = shop.add_receipt if is_bad else shop.keep_receipt
            add(tx, order_id)

    return handler


@animal
def deferred_after_the_work(shop: Shop, *, is_bad: bool) -> Handler:
    def handler(run: Run) -> None:
        with shop.connect() if is_bad else run.transaction() as tx:
            shop.debit(tx, 1)
        if is_bad and run.attempt == 1:
            raise Defer(timedelta(seconds=1))

    return handler


@animal
def own_retry_with_new_keys(shop: Shop, *, is_bad: bool) -> Handler:
    """A client with a retry loop of its own."""

    def handler(order_id: int, run: Run) -> None:
        for number in range(3):
            key = run.key("charge")
            with suppress(ConnectionError):
                shop.post("charges", order_id, f"{key}-{number}" if is_bad else key)
                return
        raise RuntimeError("the bank does not answer")

    return handler


@animal
def outbox_with_random_ids(shop: Shop, *, is_bad: bool) -> Handler:
    insert = shop.sql("insert into visit values (?, 1) on conflict do nothing")

    def handler(run: Run) -> None:
        with shop.connect() as tx:
            tx.execute(insert, (str(uuid4()) if is_bad else run.key("outbox"),))

    return handler


@animal
def claim_before_the_work(shop: Shop, *, is_bad: bool) -> Handler:
    """`run.once` guards an empty block, and the effect comes after it."""

    def bad(order_id: int, run: Run) -> None:
        with run.once(f"mail-{order_id}"):
            pass
        effect("mail", order_id)

    def good(order_id: int, run: Run) -> None:
        with run.once(f"mail-{order_id}", takeover="rerun"):
            effect("mail", order_id, key=run.key("mail"))

    return bad if is_bad else good


@animal
def savepoint_that_hides_the_conflict(shop: Shop, *, is_bad: bool) -> Handler:
    change = "update account set balance = balance - 5 where id = 1"
    insert = shop.sql("insert into receipt values (?, 'paid')")

    def handler(order_id: int) -> None:
        with shop.connect() as tx:
            if is_bad:
                tx.execute(change)
            elif shop.mark == "?":
                tx.execute("begin immediate")
            tx.execute("savepoint paid")
            try:
                tx.execute(insert, (order_id,))
                if not is_bad:
                    tx.execute(change)
            except Exception as error:
                if not is_unique_violation(error):
                    raise
                tx.execute("rollback to savepoint paid")

    return handler


@animal
def tasks_without_keys(shop: Shop, *, is_bad: bool) -> Handler:
    async def send(number: int, key: str | None) -> None:
        await asyncio.sleep(0)
        effect("mail", number, key=key)

    async def handler(run: Run) -> None:
        if is_bad:
            await asyncio.gather(*(send(number, None) for number in range(3)))
            return
        async with asyncio.TaskGroup() as tasks:
            for number in range(3):
                # Their order varies, so each step has a key.
                step = run.using(key=str(number)).astep
                tasks.create_task(step("mail", send, number, run.key(f"mail-{number}")))

    return handler
