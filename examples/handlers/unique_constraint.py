"""Let a constraint that the table has anyway say that it is done.

Choose it where the effect is one row, and the row has a natural key: one welcome gift per user, one
entry per day. Nothing of Onefold's is needed but the word that such an error is no failure:
`done_on=is_unique_violation`, whichever driver raised it.

Let the insert be the last thing that the handler does, or put the rest into its transaction: a
rerun ends with the error, and would never come to what follows.
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
    """A hundred points, once per user."""
    with transaction() as connection:
        connection.execute(sql("insert into gift values (?, 100)"), [user_id])


def enqueue() -> list[Enqueued[Any]]:
    """Two users, each asked for twice."""
    return [give_welcome_gift.enqueue(user_id) for user_id in (1, 2, 1, 2)]


def tell() -> list[str]:
    """What is there now."""
    with transaction() as connection:
        rows = connection.execute("select user_id, points from gift order by user_id")
        return [f"user {user_id} has {points} points" for user_id, points in rows]
