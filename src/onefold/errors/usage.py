"""You called us wrongly: fix the code."""

from __future__ import annotations

from onefold.errors.root import OnefoldError


class UsageError(OnefoldError):
    """You called us wrongly; the fix is in your code."""

    status = 400


class InvalidInput(UsageError):
    """A value cannot be accepted. Nothing was stored."""

    field: str
    reason: str

    def __init__(self, field: str, reason: str, *, item: int | None = None) -> None:
        """`field` names the argument, `item` its place in a batch."""
        where = field if item is None else f"item {item}: {field}"
        super().__init__(f"{where} {reason}", field=field, reason=reason, item=item)

    item: int | None

    def at(self, item: int) -> InvalidInput:
        """The same error, naming the item of a batch."""
        return type(self)(self.field, self.reason, item=item)


class ConflictingOptions(InvalidInput):
    """Two options contradict each other. Nothing was stored."""


class NoTransaction(UsageError):
    """`within` was given a connection on which no transaction is, or will be, open."""

    def __init__(self, connection: object) -> None:
        """`connection` is what was given."""
        super().__init__(
            f"{_name(connection)} has no open transaction and will not open one by itself, so the"
            " job would be committed apart from your rows. Open a transaction around the call.",
            connection=_name(connection),
        )


class WrongConnection(UsageError):
    """`within` cannot work with this connection."""

    def __init__(self, connection: object, reason: str) -> None:
        """`reason` says what is wrong and what to do."""
        super().__init__(
            f"{_name(connection)} {reason}", connection=_name(connection), reason=reason
        )


class WouldDeadlock(UsageError):
    """This thread has an open SQLite transaction and would wait for itself."""

    def __init__(self) -> None:
        """No evidence: the thread is the caller's own."""
        super().__init__(
            "This thread has an open write transaction on the same SQLite file, so this call would"
            " wait for itself. Use within(connection) to join that transaction, or commit it first."
        )


class ShardsDiffer(UsageError):
    """The database was made with another number of shards. Two counts would both win one key."""

    asked: int
    found: int

    def __init__(self, *, asked: int, found: int, where: str) -> None:
        """`found` is what the first migrate has written."""
        super().__init__(
            f"{where} has {found} shard{'s' if found != 1 else ''}, and this process asks for"
            f" {asked}. The number is fixed by the first migrate: say shards={found}, or leave"
            " it out.",
            asked=asked,
            found=found,
            where=where,
        )


class StepsChanged(UsageError):
    """A rerun asks for a step that never was, where another step came before."""

    asked: str
    expected: str

    def __init__(self, *, asked: str, expected: str) -> None:
        """`expected` is the step that came at this place in an earlier attempt."""
        super().__init__(
            f"This run asks for the step {asked!r}, where an earlier attempt of the job came to the"
            f" step {expected!r}, so the code has changed in between. Finish such jobs with the old"
            " code, or replay them with fresh=True. Steps whose order may vary need a key of their"
            " own: run.using(key=...).",
            asked=asked,
            expected=expected,
        )


class Closed(UsageError):
    """The Onefold object has been closed."""

    def __init__(self) -> None:
        """No evidence."""
        super().__init__("This Onefold object is closed. Make a new one.")


def _name(connection: object) -> str:
    kind = type(connection)
    return f"{kind.__module__}.{kind.__qualname__}"
