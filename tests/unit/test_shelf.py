"""A shelf keeps a few things, and closes the rest."""

from onefold.databases.sqlite.handler_transaction import MOST, Shelf


class Thing:
    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def test_what_finds_no_room_is_closed() -> None:
    shelf, things = Shelf[Thing](), [Thing() for _ in range(MOST + 1)]
    for thing in things:
        shelf.put(thing)
    assert [thing.is_closed for thing in things] == [False] * MOST + [True]


def test_a_closed_shelf_closes_what_it_has_and_what_is_put_there() -> None:
    shelf, before, after = Shelf[Thing](), Thing(), Thing()
    shelf.put(before)
    shelf.close()
    shelf.put(after)
    assert (before.is_closed, after.is_closed) == (True, True)
    assert shelf.take() is None
