"""Use a unique constraint of the table: its error means that the work is done.

Choose it if the effect is one row with a natural key: one welcome gift per user, one entry per day.
The handler only declares that this error is not a failure: `done_on=is_unique_violation`, for any
driver.

Make the insert the last action of the handler, or put the rest into its transaction: a rerun ends
with the error and does not reach later code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from examples.handlers.app import onefold, sql, transaction
from onefold import is_unique_violation

if TYPE_CHECKING:
    from onefold import Enqueued

TABLES: Final = (
    "create table if not exists gift (user_id integer primary key, points integer not null)",
)


@onefold.job(done_on=is_unique_violation)
def give_welcome_gift(user_id: int) -> None:
    """Give a hundred points, once per user."""
    with transaction() as connection:
        connection.execute(sql("insert into gift values (?, 100)"), [user_id])


def enqueue() -> list[Enqueued[Any]]:
    """Enqueue two users, each twice."""
    return [give_welcome_gift.enqueue(user_id) for user_id in (1, 2, 1, 2)]


def tell() -> list[str]:
    """Describe the result, line by line."""
    with transaction() as connection:
        rows = connection.execute("select user_id, points from gift order by user_id")
        return [f"user {user_id} has {points} points" for user_id, points in rows]
