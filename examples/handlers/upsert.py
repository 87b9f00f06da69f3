"""Write what is so now, over whatever was there: for state that is derived from other state.

Choose it where the effect is a row that says how things are (an index, a cache, a copy), and not
that something happened. Any number of runs, in any order, end with the same row.

Read what you write in the statement that writes it. A payload would carry what was true at the
enqueue, and a rerun would put it over something newer. And the entity may be gone by the time the
job runs: that is nobody's failure, and no retry brings it back, so the job cancels itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from examples.handlers.app import onefold, sql, transaction
from onefold import Cancel

if TYPE_CHECKING:
    from onefold import Enqueued

TABLES: Final = (
    "create table if not exists product (id integer primary key, name text not null)",
    """
    create table if not exists search_entry (
        product_id integer primary key references product (id) on delete cascade,
        words text not null
    )
    """,
)

UPSERT: Final = """
insert into search_entry (product_id, words)
select id, lower(name) from product where id = ?
on conflict (product_id) do update set words = excluded.words
"""


@onefold.job
def index_product(product_id: int) -> None:
    """Let a product be found by the name that it has now."""
    with transaction() as connection:
        written = connection.execute(sql(UPSERT), [product_id]).rowcount
    if not written:
        raise Cancel(f"product {product_id} is gone")


def enqueue() -> list[Enqueued[Any]]:
    """A product that is there, asked for twice, and one that is not."""
    with transaction() as connection:
        connection.execute(
            "insert into product (id, name) values (1, 'Green Tea') on conflict do nothing"
        )
    return [index_product.enqueue(product_id) for product_id in (1, 1, 404)]


def tell() -> list[str]:
    """What is there now."""
    with transaction() as connection:
        rows = connection.execute("select product_id, words from search_entry order by product_id")
        return [f"product {product_id} is found as {words!r}" for product_id, words in rows]
