"""Handlers with known bugs, and their correct twins."""

import asyncio
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
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


def animal(make: Callable[[Shop], Pair]) -> Callable[[Shop], Pair]:
    ZOO[make.__name__] = make
    return make


@animal
def check_then_act(shop: Shop) -> Pair:
    @shop.onefold.job
    def bad(order_id: int) -> None:
        with shop.connect() as tx:
            found = tx.execute(shop.sql("select 1 from payment where order_id = ?"), (order_id,))
            if found.fetchone() is None:
                tx.execute(
                    shop.sql("insert into payment (order_id, amount) values (?, 5)"), (order_id,)
                )

    @shop.onefold.job
    def good(order_id: int) -> None:
        with shop.connect() as tx:
            tx.execute(
                shop.sql("insert into receipt values (?, 'paid') on conflict do nothing"),
                (order_id,),
            )

    return bad, good


@animal
def effect_before_record(shop: Shop) -> Pair:
    @shop.onefold.job
    def bad(order_id: int, run: Run) -> None:
        effect("charge", order_id)
        with run.transaction() as tx:
            tx.execute(
                shop.sql("insert into payment (order_id, amount) values (?, 5)"), (order_id,)
            )

    @shop.onefold.job
    def good(order_id: int, run: Run) -> None:
        effect("charge", order_id, key=run.key("charge"))
        with run.transaction() as tx:
            tx.execute(
                shop.sql("insert into payment (order_id, amount) values (?, 5)"), (order_id,)
            )

    return bad, good


@animal
def record_before_effect(shop: Shop) -> Pair:
    @shop.onefold.job
    def bad(order_id: int) -> None:
        with shop.connect() as tx:
            stored = tx.execute(
                shop.sql("insert into receipt values (?, 'sent') on conflict do nothing"),
                (order_id,),
            )
        if stored.rowcount:
            effect("mail", order_id, key=f"mail:{order_id}")

    @shop.onefold.job
    def good(order_id: int) -> None:
        effect("mail", order_id, key=f"mail:{order_id}")
        with shop.connect() as tx:
            tx.execute(
                shop.sql("insert into receipt values (?, 'sent') on conflict do nothing"),
                (order_id,),
            )

    return bad, good


@animal
def key_per_attempt(shop: Shop) -> Pair:
    @shop.onefold.job
    def bad(order_id: int, run: Run) -> None:
        effect("charge", order_id, key=f"{order_id}:{run.attempt}")

    @shop.onefold.job
    def good(order_id: int, run: Run) -> None:
        effect("charge", order_id, key=run.key("charge"))

    return bad, good


@animal
def random_key(shop: Shop) -> Pair:
    @shop.onefold.job
    def bad(order_id: int) -> None:
        effect("charge", order_id, key=str(uuid4()))

    @shop.onefold.job
    def good(order_id: int, run: Run) -> None:
        effect("charge", order_id, key=str(run.uuid()))

    return bad, good


@animal
def time_in_key(shop: Shop) -> Pair:
    @shop.onefold.job
    def bad(order_id: int) -> None:
        effect("charge", order_id, key=f"{order_id}:{time.time_ns()}")

    @shop.onefold.job
    def good(order_id: int, run: Run) -> None:
        effect("charge", order_id, key=f"{order_id}:{run.now().date()}")

    return bad, good


@animal
def swallowed_conflict(shop: Shop) -> Pair:
    @shop.onefold.job
    def bad(order_id: int) -> None:
        try:
            with shop.connect() as tx:
                tx.execute(shop.sql("insert into receipt values (?, 'paid')"), (order_id,))
        except Exception as error:
            if not is_unique_violation(error):
                raise
        with shop.connect() as tx:
            tx.execute("update account set balance = balance - 5 where id = 1")

    @shop.onefold.job(done_on=(is_unique_violation,))
    def good(order_id: int) -> None:
        with shop.connect() as tx:
            tx.execute(shop.sql("insert into receipt values (?, 'paid')"), (order_id,))
            tx.execute("update account set balance = balance - 5 where id = 1")

    return bad, good


@animal
def two_transactions(shop: Shop) -> Pair:
    @shop.onefold.job
    def bad() -> None:
        with shop.connect() as tx:
            tx.execute("update account set balance = balance - 5 where id = 1")
        with shop.connect() as tx:
            tx.execute("update account set balance = balance + 5 where id = 2")

    @shop.onefold.job
    def good(run: Run) -> None:
        with run.transaction() as tx:
            tx.execute("update account set balance = balance - 5 where id = 1")
            tx.execute("update account set balance = balance + 5 where id = 2")

    return bad, good


@animal
def commit_inside(shop: Shop) -> Pair:
    @shop.onefold.job
    def bad(order_id: int) -> None:
        with shop.connect() as tx:
            tx.execute(
                shop.sql("insert into payment (order_id, amount) values (?, 5)"), (order_id,)
            )
            tx.commit()
            tx.execute(
                shop.sql("insert into receipt values (?, 'paid') on conflict do nothing"),
                (order_id,),
            )

    @shop.onefold.job
    def good(order_id: int, run: Run) -> None:
        with run.transaction() as tx:
            tx.execute(
                shop.sql("insert into payment (order_id, amount) values (?, 5)"), (order_id,)
            )
            tx.execute(shop.sql("insert into receipt values (?, 'paid')"), (order_id,))

    return bad, good


@animal
def read_modify_write(shop: Shop) -> Pair:
    @shop.onefold.job
    def bad() -> None:
        with shop.connect() as tx:
            (balance,) = tx.execute("select balance from account where id = 1").fetchone()
            tx.execute(shop.sql("update account set balance = ? where id = 1"), (balance - 5,))

    @shop.onefold.job
    def good(run: Run) -> None:
        with run.transaction() as tx:
            tx.execute("update account set balance = balance - 5 where id = 1")

    return bad, good


@animal
def mail_inside_transaction(shop: Shop) -> Pair:
    @shop.onefold.job
    def bad(order_id: int, run: Run) -> None:
        with run.transaction() as tx:
            tx.execute(shop.sql("insert into receipt values (?, 'paid')"), (order_id,))
            effect("mail", order_id)

    @shop.onefold.job
    def good(order_id: int, run: Run) -> None:
        with run.transaction() as tx:
            tx.execute(shop.sql("insert into receipt values (?, 'paid')"), (order_id,))
            run.within().enqueue("mail", {"order": order_id})

    return bad, good


@animal
def once_per_delivery(shop: Shop) -> Pair:
    """The scope of a key is a delivery, and should be the order."""

    @shop.onefold.job
    def bad(order_id: int, run: Run) -> None:
        with shop.onefold.once("mail", f"{order_id}:{run.fence}", takeover="rerun"):
            effect("mail", order_id)

    @shop.onefold.job
    def good(order_id: int, run: Run) -> None:
        with shop.onefold.once("mail", str(order_id), takeover="rerun"):
            effect("mail", order_id, key=run.key("mail"))

    return bad, good


@animal
def late_writer(shop: Shop) -> Pair:
    """A delivery that lost its lease writes after its successor."""

    @shop.onefold.job
    def bad(order_id: int) -> None:
        with shop.connect() as tx:
            found = tx.execute(shop.sql("select 1 from receipt where order_id = ?"), (order_id,))
            is_new = found.fetchone() is None
        if is_new:
            with shop.connect() as tx:
                tx.execute("update account set balance = balance - 5 where id = 1")
                tx.execute(
                    shop.sql("insert into receipt values (?, 'paid') on conflict do nothing"),
                    (order_id,),
                )

    @shop.onefold.job
    def good(order_id: int, run: Run) -> None:
        with shop.connect() as tx:
            found = tx.execute(shop.sql("select 1 from receipt where order_id = ?"), (order_id,))
            is_new = found.fetchone() is None
        if is_new:
            with run.transaction() as tx:
                tx.execute("update account set balance = balance - 5 where id = 1")
                tx.execute(shop.sql("insert into receipt values (?, 'paid')"), (order_id,))

    return bad, good


def _post(url: str, body: bytes, **headers: str) -> None:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, body, named)
    urllib.request.urlopen(request).close()


@animal
def answer_lost(shop: Shop) -> Pair:
    @shop.onefold.job
    def bad(order_id: int) -> None:
        _post(f"{shop.bank}/charges", b"%d" % order_id)

    @shop.onefold.job
    def good(order_id: int, run: Run) -> None:
        _post(f"{shop.bank}/charges", b"%d" % order_id, idempotency_key=run.key("charge"))

    return bad, good


@animal
def answer_lost_taken_for_failure(shop: Shop) -> Pair:
    @shop.onefold.job
    def bad(order_id: int, run: Run) -> None:
        try:
            _post(f"{shop.bank}/charges", b"%d" % order_id, idempotency_key=run.key("charge"))
            status = "paid"
        except OSError:
            status = "failed"
        with run.transaction() as tx:
            tx.execute(shop.sql("insert into receipt values (?, ?)"), (order_id, status))

    @shop.onefold.job
    def good(order_id: int, run: Run) -> None:
        _post(f"{shop.bank}/charges", b"%d" % order_id, idempotency_key=run.key("charge"))
        with run.transaction() as tx:
            tx.execute(shop.sql("insert into receipt values (?, 'paid')"), (order_id,))

    return bad, good


@animal
def compensation_after_lost_answer(shop: Shop) -> Pair:
    @shop.onefold.job
    def bad(order_id: int, run: Run) -> None:
        try:
            _post(f"{shop.bank}/charges", b"%d" % order_id, idempotency_key=run.key("charge"))
        except OSError:
            _post(f"{shop.bank}/refunds", b"%d" % order_id, idempotency_key=run.key("refund"))

    @shop.onefold.job
    def good(order_id: int, run: Run) -> None:
        run.step(
            "charge",
            _post,
            f"{shop.bank}/charges",
            b"%d" % order_id,
            idempotency_key=run.key("charge"),
        )

    return bad, good


@animal
def enqueue_apart(shop: Shop) -> Pair:
    @shop.onefold.job
    def bad(order_id: int, run: Run) -> None:
        shop.onefold.enqueue("mail", {"order": order_id})
        with run.transaction() as tx:
            tx.execute(shop.sql("insert into receipt values (?, 'paid')"), (order_id,))

    @shop.onefold.job
    def good(order_id: int, run: Run) -> None:
        with run.transaction() as tx:
            tx.execute(shop.sql("insert into receipt values (?, 'paid')"), (order_id,))
            run.within().enqueue("mail", {"order": order_id})

    return bad, good


@animal
def enqueue_without_publish_key(shop: Shop) -> Pair:
    @shop.onefold.job
    def bad(order_id: int) -> None:
        shop.onefold.enqueue("mail", {"order": order_id})

    @shop.onefold.job
    def good(order_id: int, run: Run) -> None:
        shop.onefold.enqueue("mail", {"order": order_id}, idempotency_key=run.key("mail"))

    return bad, good


@animal
def appended_text(shop: Shop) -> Pair:
    @shop.onefold.job
    def bad(order_id: int) -> None:
        with shop.connect() as tx:
            tx.execute(
                shop.sql("update purchase set log = log || 'paid;' where id = ?"), (order_id,)
            )

    @shop.onefold.job
    def good(order_id: int) -> None:
        with shop.connect() as tx:
            tx.execute(shop.sql("update purchase set log = 'paid;' where id = ?"), (order_id,))

    return bad, good


@animal
def next_number(shop: Shop) -> Pair:
    @shop.onefold.job
    def bad() -> None:
        with shop.connect() as tx:
            tx.execute(
                "insert into receipt select coalesce(max(order_id), 0) + 1, 'invoice' from receipt"
            )

    @shop.onefold.job
    def good(run: Run) -> None:
        with run.transaction() as tx:
            tx.execute(
                "insert into receipt select coalesce(max(order_id), 0) + 1, 'invoice' from receipt"
            )

    return bad, good


@animal
def counting_upsert(shop: Shop) -> Pair:
    upsert = (
        "insert into visit values ('home', 1) on conflict (page) do update set"
        " count = visit.count + 1"
    )

    @shop.onefold.job
    def bad() -> None:
        with shop.connect() as tx:
            tx.execute(upsert)

    @shop.onefold.job
    def good(run: Run) -> None:
        with run.transaction() as tx:
            tx.execute(upsert)

    return bad, good


@animal
def status_after_effect(shop: Shop) -> Pair:
    @shop.onefold.job
    def bad(order_id: int) -> None:
        with shop.connect() as tx:
            row = tx.execute(shop.sql("select status from purchase where id = ?"), (order_id,))
            (status,) = row.fetchone()
        if status == "new":
            effect("ship", order_id)
            with shop.connect() as tx:
                tx.execute(
                    shop.sql("update purchase set status = 'shipped' where id = ?"), (order_id,)
                )

    @shop.onefold.job
    def good(order_id: int) -> None:
        with shop.connect() as tx:
            row = tx.execute(shop.sql("select status from purchase where id = ?"), (order_id,))
            (status,) = row.fetchone()
        if status == "new":
            effect("ship", order_id, key=f"ship:{order_id}")
            with shop.connect() as tx:
                tx.execute(
                    shop.sql("update purchase set status = 'shipped' where id = ?"), (order_id,)
                )

    return bad, good


@animal
def status_before_effect(shop: Shop) -> Pair:
    @shop.onefold.job
    def bad(order_id: int) -> None:
        with shop.connect() as tx:
            changed = tx.execute(
                shop.sql("update purchase set status = 'shipped' where id = ? and status = 'new'"),
                (order_id,),
            )
        if changed.rowcount:
            effect("ship", order_id, key=f"ship:{order_id}")

    @shop.onefold.job
    def good(order_id: int) -> None:
        effect("ship", order_id, key=f"ship:{order_id}")
        with shop.connect() as tx:
            tx.execute(
                shop.sql("update purchase set status = 'shipped' where id = ? and status = 'new'"),
                (order_id,),
            )

    return bad, good


@animal
def loop_of_mails(shop: Shop) -> Pair:
    @shop.onefold.job
    def bad() -> None:
        for user in range(3):
            effect("mail", user)

    @shop.onefold.job
    def good(run: Run) -> None:
        for user in range(3):
            effect("mail", user, key=run.key(f"mail-{user}"))

    return bad, good


@animal
def same_key_for_all(shop: Shop) -> Pair:
    """One key for three mails: the receiver drops two of them, in a clean run already."""

    @shop.onefold.job
    def bad(run: Run) -> None:
        for user in range(3):
            effect("mail", user, key=f"{run.key('mail')}:{run.attempt}:{user}")

    @shop.onefold.job
    def good(run: Run) -> None:
        for user in range(3):
            effect("mail", user, key=f"{run.key('mail')}:{user}")

    return bad, good


@animal
def step_named_by_attempt(shop: Shop) -> Pair:
    @shop.onefold.job
    def bad(order_id: int, run: Run) -> None:
        run.step(f"charge-{run.attempt}", effect, "charge", order_id)

    @shop.onefold.job
    def good(order_id: int, run: Run) -> None:
        run.step("charge", effect, "charge", order_id, key=run.key("charge"))

    return bad, good


@animal
def lock_instead_of_key(shop: Shop) -> Pair:
    @shop.onefold.job
    def bad(order_id: int) -> None:
        with shop.onefold.lock(f"order:{order_id}"):
            effect("charge", order_id)

    @shop.onefold.job
    def good(order_id: int, run: Run) -> None:
        with shop.onefold.lock(f"order:{order_id}"):
            effect("charge", order_id, key=run.key("charge"))

    return bad, good


@animal
def insert_that_fails_the_second_time(shop: Shop) -> Pair:
    @shop.onefold.job
    def bad(order_id: int) -> None:
        with shop.connect() as tx:
            tx.execute(shop.sql("insert into receipt values (?, 'paid')"), (order_id,))

    @shop.onefold.job
    def good(order_id: int) -> None:
        with shop.connect() as tx:
            tx.execute(
                shop.sql("insert into receipt values (?, 'paid') on conflict do nothing"),
                (order_id,),
            )

    return bad, good


@animal
def already_done_is_an_error(shop: Shop) -> Pair:
    @shop.onefold.job
    def bad(order_id: int) -> None:
        with shop.connect() as tx:
            changed = tx.execute(
                shop.sql("update purchase set status = 'paid' where id = ? and status = 'new'"),
                (order_id,),
            )
            if not changed.rowcount:
                raise ValueError("the order is not new")

    @shop.onefold.job
    def good(order_id: int) -> None:
        with shop.connect() as tx:
            tx.execute(
                shop.sql("update purchase set status = 'paid' where id = ? and status = 'new'"),
                (order_id,),
            )

    return bad, good


@animal
def deferred_after_the_work(shop: Shop) -> Pair:
    @shop.onefold.job
    def bad(run: Run) -> None:
        with shop.connect() as tx:
            tx.execute("update account set balance = balance - 5 where id = 1")
        if run.attempt == 1:
            from datetime import timedelta

            raise Defer(timedelta(seconds=1))

    @shop.onefold.job
    def good(run: Run) -> None:
        with run.transaction() as tx:
            tx.execute("update account set balance = balance - 5 where id = 1")

    return bad, good


@animal
def two_effects_in_one_step(shop: Shop) -> Pair:
    @shop.onefold.job
    def bad(order_id: int, run: Run) -> None:
        def both() -> None:
            effect("charge", order_id, key=run.key("charge"))
            effect("mail", order_id)

        run.step("both", both)

    @shop.onefold.job
    def good(order_id: int, run: Run) -> None:
        run.step("charge", effect, "charge", order_id, key=run.key("charge"))
        run.step("mail", effect, "mail", order_id, key=run.key("mail"))

    return bad, good


@animal
def own_retry_with_new_keys(shop: Shop) -> Pair:
    """A client with a retry loop of its own."""

    def charge(order_id: int, key_of: Callable[[int], str]) -> None:
        for number in range(3):
            with suppress(ConnectionError):
                _post(f"{shop.bank}/charges", b"%d" % order_id, idempotency_key=key_of(number))
                return
        raise RuntimeError("the bank does not answer")

    @shop.onefold.job
    def bad(order_id: int, run: Run) -> None:
        charge(order_id, lambda number: f"{run.key('charge')}-{number}")

    @shop.onefold.job
    def good(order_id: int, run: Run) -> None:
        charge(order_id, lambda _: run.key("charge"))

    return bad, good


@animal
def error_swallowed_after_lost_answer(shop: Shop) -> Pair:
    @shop.onefold.job
    def bad(order_id: int, run: Run) -> None:
        with suppress(OSError):
            _post(f"{shop.bank}/ship", b"%d" % order_id)
        with run.transaction() as tx:
            tx.execute(shop.sql("insert into receipt values (?, 'sent')"), (order_id,))

    @shop.onefold.job
    def good(order_id: int, run: Run) -> None:
        _post(f"{shop.bank}/ship", b"%d" % order_id, idempotency_key=run.key("ship"))
        with run.transaction() as tx:
            tx.execute(shop.sql("insert into receipt values (?, 'sent')"), (order_id,))

    return bad, good


@animal
def saga_with_one_key(shop: Shop) -> Pair:
    def call(path: str, key: str | None) -> str:
        _post(f"{shop.bank}/{path}", b"7", **({"idempotency_key": key} if key else {}))
        return path

    @shop.onefold.job
    def bad(order_id: int, run: Run) -> None:
        run.step("reserve", call, "reserve", run.key("reserve"))
        charged = run.step("charge", call, "charge", None)
        with run.transaction() as tx:
            tx.execute(shop.sql("insert into receipt values (?, ?)"), (order_id, charged))

    @shop.onefold.job
    def good(order_id: int, run: Run) -> None:
        run.step("reserve", call, "reserve", run.key("reserve"))
        charged = run.step("charge", call, "charge", run.key("charge"))
        with run.transaction() as tx:
            tx.execute(shop.sql("insert into receipt values (?, ?)"), (order_id, charged))

    return bad, good


@animal
def outbox_with_random_ids(shop: Shop) -> Pair:
    insert = "insert into visit values (?, 1) on conflict do nothing"

    @shop.onefold.job
    def bad() -> None:
        with shop.connect() as tx:
            tx.execute(shop.sql(insert), (str(uuid4()),))

    @shop.onefold.job
    def good(run: Run) -> None:
        with shop.connect() as tx:
            tx.execute(shop.sql(insert), (run.key("outbox"),))

    return bad, good


@animal
def delete_then_insert_in_two_commits(shop: Shop) -> Pair:
    """Between the two, another delivery inserts its own row."""

    @shop.onefold.job
    def bad(order_id: int) -> None:
        with shop.connect() as tx:
            tx.execute(shop.sql("delete from payment where order_id = ?"), (order_id,))
            tx.commit()
            tx.execute(
                shop.sql("insert into payment (order_id, amount) values (?, 5)"), (order_id,)
            )

    @shop.onefold.job
    def good(order_id: int, run: Run) -> None:
        with run.transaction() as tx:
            tx.execute(shop.sql("delete from payment where order_id = ?"), (order_id,))
            tx.execute(
                shop.sql("insert into payment (order_id, amount) values (?, 5)"), (order_id,)
            )

    return bad, good


@animal
def lock_around_a_counter(shop: Shop) -> Pair:
    """A lock keeps others out, and does not remember what was done."""

    @shop.onefold.job
    def bad(run: Run) -> None:
        with run.lock("account:1"), shop.connect() as tx:
            (balance,) = tx.execute("select balance from account where id = 1").fetchone()
            tx.execute(shop.sql("update account set balance = ? where id = 1"), (balance - 5,))

    @shop.onefold.job
    def good(run: Run) -> None:
        with run.lock("account:1"), run.transaction() as tx:
            (balance,) = tx.execute("select balance from account where id = 1").fetchone()
            tx.execute(shop.sql("update account set balance = ? where id = 1"), (balance - 5,))

    return bad, good


@animal
def claim_before_the_work(shop: Shop) -> Pair:
    """`run.once` guards an empty block, and the effect comes after it."""

    @shop.onefold.job
    def bad(order_id: int, run: Run) -> None:
        with run.once(f"mail-{order_id}"):
            pass
        effect("mail", order_id)

    @shop.onefold.job
    def good(order_id: int, run: Run) -> None:
        with run.once(f"mail-{order_id}", takeover="rerun"):
            effect("mail", order_id, key=run.key("mail"))

    return bad, good


@animal
def enqueue_after_the_transaction(shop: Shop) -> Pair:
    @shop.onefold.job
    def bad(order_id: int, run: Run) -> None:
        with run.transaction() as tx:
            tx.execute(shop.sql("insert into receipt values (?, 'paid')"), (order_id,))
        shop.onefold.enqueue("mail", {"order": order_id})

    @shop.onefold.job
    def good(order_id: int, run: Run) -> None:
        shop.onefold.enqueue("mail", {"order": order_id}, unique_key=f"mail:{order_id}")
        with run.transaction() as tx:
            tx.execute(shop.sql("insert into receipt values (?, 'paid')"), (order_id,))

    return bad, good


@animal
def loop_with_a_commit_for_each_row(shop: Shop) -> Pair:
    @shop.onefold.job
    def bad() -> None:
        with shop.connect() as tx:
            for number in (1, 2):
                tx.execute(
                    shop.sql("update account set balance = balance - 5 where id = ?"), (number,)
                )
                tx.commit()

    @shop.onefold.job
    def good(run: Run) -> None:
        with run.transaction() as tx:
            for number in (1, 2):
                tx.execute(
                    shop.sql("update account set balance = balance - 5 where id = ?"), (number,)
                )

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

    @shop.onefold.job
    def bad(order_id: int) -> None:
        with shop.connect() as tx:
            tx.execute(change)
            attempt(tx, order_id)

    @shop.onefold.job
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

    @shop.onefold.job
    async def bad() -> None:
        await asyncio.gather(*(send(number, None) for number in range(3)))

    @shop.onefold.job
    async def good(run: Run) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(3):
                # Their order varies, so each step has a key.
                step = run.using(key=str(number)).astep
                tasks.create_task(step("mail", send, number, run.key(f"mail-{number}")))

    return bad, good
