"""The handlers of the examples, each with the effect that it must have had once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from examples.partner import Partner
from onefold import Fixed
from tests.fixtures.place import Place


class World(NamedTuple):
    """Where effects happen: the database, a folder, and somebody else."""

    place: Place
    folder: Path
    partner: Partner

    @property
    def environment(self) -> dict[str, str]:
        """What the examples are told of it."""
        return {
            "ONEFOLD_DATABASE": self.place.url,
            "INVOICES": str(self.folder),
            "PARTNER_URL": self.partner.url,
        }

    def rows(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        """What a query finds, parameters as sqlite3 spells them."""
        text = query.replace("?", "%s") if self.place.on_postgres else query
        with self.place.connection() as connection:
            return [tuple(row) for row in connection.execute(text, parameters).fetchall()]

    def ordered(self, door: str, job_id: str) -> list[str]:
        """The receipts of what a job has ordered."""
        found = self.partner.ordered
        return [one.receipt for one in found if one.door == door and one.key.startswith(job_id)]


@dataclass(frozen=True)
class Story:
    """One handler."""

    example: str
    kind: str
    payload: Callable[[int], dict[str, Any]]
    """Of the job with this number."""
    effects: Callable[[World, int, str], object]
    """What the job with this number and id has done."""
    once: object
    """What that is where it was done once."""
    before: Sequence[str] = ()
    """Statements that put there what the handler needs; `?` is the number."""
    ends: str = "completed"

    def __str__(self) -> str:
        return self.kind if self.ends == "completed" else f"{self.kind}-{self.ends}"


def ready(story: Story, world: World, handlers: ModuleType, number: int) -> str:
    """Put there what a handler needs, and a job for it; its id."""
    with world.place.transaction() as connection:
        for statement in story.before:
            connection.execute(statement.replace("?", str(number)))
    enqueued = handlers.onefold.enqueue(
        story.kind, story.payload(number), backoff=Fixed(timedelta(0)), store_result=True
    )
    return str(enqueued.id)


def _invoices(world: World, number: int, _: str) -> object:
    return [path.read_text() == f"Invoice for order {number}\n"
            for path in world.folder.glob(f"{number}.txt")]  # fmt: skip


def _payments(door: str) -> Callable[[World, int, str], object]:
    def found(world: World, number: int, job_id: str) -> object:
        """One row, with the receipt of the one order."""
        rows = world.rows("select receipt from payment where order_id = ?", number)
        return len(rows), rows == [(receipt,) for receipt in world.ordered(door, job_id)]

    return found


def _labels(world: World, _: int, job_id: str) -> object:
    with world.place.open() as onefold:
        job = onefold.get(job_id)
    receipts = world.ordered("/labels", job_id)
    return len(receipts), job is not None and [job.result] == receipts


def _rows(query: str) -> Callable[[World, int, str], object]:
    return lambda world, number, _: world.rows(query, number)


STORIES = [
    Story("existence_check", "write_invoice", lambda n: {"order_id": n}, _invoices, [True]),
    Story(
        "upsert",
        "index_product",
        lambda n: {"product_id": n},
        _rows("select words from search_entry where product_id = ?"),
        [("tea",)],
        ["insert into product (id, name) values (?, 'Tea')"],
    ),
    Story(
        "upsert",
        "index_product",
        lambda n: {"product_id": n},
        _rows("select words from search_entry where product_id = ?"),
        [],
        ends="cancelled",
    ),
    Story(
        "third_party_key",
        "charge",
        lambda n: {"order_id": n, "cents": 1990},
        _payments("/charges"),
        (1, True),
    ),
    Story(
        "third_party_key",
        "refund",
        lambda n: {"order_id": n, "cents": 1990},
        _payments("/transfers"),
        (1, True),
    ),
    Story(
        "lock",
        "build_report",
        lambda n: {"day": str(n)},
        _rows(
            "select region from report join report_line using (day)"
            " where day = cast(? as text) order by region"
        ),
        [("north",), ("south",), ("west",)],
    ),
    Story("cached_result", "buy_label", lambda n: {"parcel_id": n}, _labels, (1, True)),
    Story(
        "ledger",
        "credit",
        lambda n: {"account_id": n, "cents": 500},
        _rows("select cents from account where id = ?"),
        [(500,)],
        ["insert into account (id, cents) values (?, 0)"],
    ),
    Story(
        "ledger",
        "credit_event",
        lambda n: {"event_id": f"evt_{n}", "account_id": n, "cents": 700},
        _rows("select cents from account where id = ?"),
        [(700,)],
        ["insert into account (id, cents) values (?, 0)"],
    ),
    Story(
        "unique_constraint",
        "give_welcome_gift",
        lambda n: {"user_id": n},
        _rows("select points from gift where user_id = ?"),
        [(100,)],
    ),
]
