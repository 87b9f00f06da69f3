"""Overwrite a row with the current state: for state that is derived from other state.

Choose it if the effect is a row that describes a state (an index, a cache, a copy), not an event.
Any number of runs, in any order, end with the same row.

Read the values in the statement that writes them. A payload contains values from the time of the
enqueue, and a rerun could overwrite newer ones. The entity may be deleted before the job runs: this
is not an error, and a retry cannot help, so the job cancels itself.
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
    """Index a product by its current name."""
    with transaction() as connection:
        written = connection.execute(sql(UPSERT), [product_id]).rowcount
    if not written:
        raise Cancel(f"product {product_id} is gone")


def enqueue() -> list[Enqueued[Any]]:
    """Enqueue an existing product twice, and one that does not exist."""
    with transaction() as connection:
        connection.execute(
            "insert into product (id, name) values (1, 'Green Tea') on conflict do nothing"
        )
    return [index_product.enqueue(product_id) for product_id in (1, 1, 404)]


def tell() -> list[str]:
    """Describe the result, line by line."""
    with transaction() as connection:
        rows = connection.execute("select product_id, words from search_entry order by product_id")
        return [f"product {product_id} is found as {words!r}" for product_id, words in rows]
