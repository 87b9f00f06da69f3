"""`assert_idempotent` on SQLite: a delivery is a call of the handler, in a copy of the rows."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from msgspec.structs import replace

from bench import sqlite_stage
from onefold import Onefold, Run
from onefold.testing import assert_idempotent, effect

if TYPE_CHECKING:
    from bench.stopwatch import Stopwatch
    from bench.values import Order


def check(order: Order, watch: Stopwatch) -> None:
    """Check the handler again and again, until so many deliveries were made."""
    sqlite_stage.onefold_file(order.url)
    path = sqlite_stage.path_of(order.url)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table receipt (order_id integer primary key)")
    with Onefold(order.url) as onefold:

        @onefold.job
        def send_receipt(run: Run, order_id: int) -> None:
            run.step("mail", effect, "mail", order_id, key=run.key("mail"))
            if order.word("writes") == "own connection":
                with closing(sqlite3.connect(path)) as own, own:
                    own.execute(
                        "insert into receipt values (?) on conflict do nothing", (order_id,)
                    )
            else:
                with run.transaction() as tx:
                    tx.execute("insert into receipt values (?)", (order_id,))

        assert_idempotent(send_receipt, 7)
        made = 0
        with watch.running(order.jobs):
            while made < order.jobs:
                made += assert_idempotent(send_receipt, 7).deliveries
        assert watch.lap is not None
        watch.lap = replace(watch.lap, jobs=made)
