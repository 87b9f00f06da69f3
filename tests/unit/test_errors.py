"""The errors: their tree, their sentences, their evidence."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from datetime import UTC, datetime, timedelta

import pytest

from onefold import errors
from onefold.errors import (
    AlreadyEnqueued,
    Busy,
    Closed,
    Conflict,
    ConflictingOptions,
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    Gone,
    InvalidInput,
    JobFailed,
    JobNotFound,
    JobTimeout,
    KeyReused,
    LeaseLost,
    NoTransaction,
    OnefoldError,
    OutcomeUnknown,
    ProcessDied,
    QueueNotEmpty,
    QueueNotFound,
    ResultTimeout,
    ScheduleNotFound,
    SchemaOutdated,
    SchemaTooNew,
    SerializationConflict,
    ShardsDiffer,
    StepFailed,
    StepsChanged,
    TooOld,
    UsageError,
    WorkFailed,
    WouldDeadlock,
    WrongConnection,
    WrongState,
)

MOMENT = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECONDS = timedelta(seconds=1.5)


class Connection:
    """Stands for a driver's connection."""


EXAMPLES: list[OnefoldError] = [
    InvalidInput("kind", "must not be empty"),
    InvalidInput("kind", "must not be empty", item=3),
    ConflictingOptions("delay", "cannot be given together with run_at"),
    NoTransaction(Connection()),
    WrongConnection(Connection(), "is a sync connection. Call the method without the leading a."),
    WouldDeadlock(),
    ShardsDiffer(requested=4, found=1, where="sqlite:///app.db"),
    Closed(),
    AlreadyEnqueued(key="k", holder_id="1", state="ready", item=0),
    KeyReused(key="k"),
    KeyReused(key="k", holder_id="1", item=2),
    Busy(key="k", retry_after=SECONDS),
    OutcomeUnknown(key="k"),
    OutcomeUnknown(key="k", since=MOMENT),
    StepFailed(step="charge", error_type="bank.CardError", reason="declined"),
    StepsChanged(requested="refund", expected="charge"),
    LeaseLost("job 1", fence=7),
    JobNotFound("1"),
    WrongState("1", state="completed", wanted="a dead or cancelled job"),
    Gone("1"),
    JobFailed("1", kind="email", state="dead", reason="poison", error=None),
    JobFailed("1", kind="email", state="dead", reason=None, error={"type": "E", "message": "m"}),
    ResultTimeout("1", state="running", timeout=SECONDS),
    TooOld(key="k", issued_at=MOMENT, horizon=MOMENT),
    ScheduleNotFound("nightly"),
    QueueNotEmpty("payments"),
    QueueNotFound("payments"),
    JobTimeout(SECONDS),
    ProcessDied(-9),
    ProcessDied(7),
    ProcessDied(None),
    DatabaseBusy("another transaction holds this key.", waited=SECONDS),
    DatabaseUnavailable("postgresql://host/db", "the disk is full."),
    SerializationConflict("could not serialize access"),
    SchemaTooNew(found=7, needed=6, known=5, where="sqlite:///app.db"),
    SchemaOutdated(found=0, needed=2, where="postgresql://host/db"),
    SchemaOutdated(found=1, needed=2, where="postgresql://host/db", schema="app"),
]


def classes() -> list[type[OnefoldError]]:
    return [
        value
        for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, OnefoldError)
    ]


def drawn_tree() -> dict[str, str | None]:
    """Each class of the docstring's drawing with its parent."""
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if found := re.match(r"    ((?:[│ ]   |[├└]── )*)([A-Z]\w+)(?:  |$)", line):
            depth = len(found.group(1)) // 4
            path[depth:] = [found.group(2)]
            parents[found.group(2)] = path[depth - 1] if depth else None
    return parents


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    assert drawn_tree() == {
        kind.__name__: None if kind is OnefoldError else drawn_parent(kind) for kind in classes()
    }


def drawn_parent(kind: type[OnefoldError]) -> str:
    # ConflictingOptions is an InvalidInput, so that whoever catches bad input catches it too; the
    # drawing shows it beside its parent, since to a reader it is one more way to call us wrongly.
    return "UsageError" if kind is ConflictingOptions else kind.__bases__[0].__name__


def test_every_error_has_an_example_here() -> None:
    assert {type(error) for error in EXAMPLES} == set(classes()) - {
        OnefoldError,
        UsageError,
        Conflict,
        WorkFailed,
        DatabaseError,
    }


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling(error: OnefoldError) -> None:
    for copied in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(copied) is type(error)
        assert str(copied) == str(error)
        assert copied.args == error.args
        assert copied.evidence == error.evidence
        for name, value in error.evidence.items():
            assert getattr(copied, name) == value


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_evidence_is_in_fields(error: OnefoldError) -> None:
    assert {name: getattr(error, name) for name in error.evidence} == error.evidence
    assert {*error.evidence} >= {name for name in annotations_of(type(error)) if name != "status"}


def annotations_of(kind: type[OnefoldError]) -> set[str]:
    return {
        name
        for parent in kind.__mro__
        if parent is not OnefoldError and issubclass(parent, OnefoldError)
        for name in inspect.get_annotations(parent)
    }


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_a_message_is_a_sentence(error: OnefoldError) -> None:
    message = str(error)

    assert message == message.strip()
    assert "\n" not in message
    assert "  " not in message
    if not isinstance(error, InvalidInput):
        assert message.endswith(".")


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_a_status_says_whose_fault_it_is(error: OnefoldError) -> None:
    match error:
        case UsageError():
            assert error.status == 400
        case SerializationConflict() | Conflict():
            assert 404 <= error.status < 500
        case WorkFailed():
            assert error.status == 500
        case _:
            assert error.status == 503


def test_the_statuses_that_clients_rely_on() -> None:
    assert (KeyReused.status, Busy.status, JobNotFound.status, Gone.status) == (422, 409, 404, 410)


def test_bad_input_of_a_batch_names_the_item() -> None:
    error = ConflictingOptions("delay", "cannot be given together with run_at").at(4)

    assert type(error) is ConflictingOptions
    assert str(error) == "item 4: delay cannot be given together with run_at"
    assert (error.field, error.reason, error.item) == (
        "delay",
        "cannot be given together with run_at",
        4,
    )


def test_a_connection_is_named_and_not_kept() -> None:
    error = NoTransaction(Connection())

    assert error.evidence["connection"] == f"{__name__}.Connection"
    assert str(error).startswith(f"{__name__}.Connection has no open transaction")


def test_an_outdated_schema_names_the_command() -> None:
    missing, old = EXAMPLES[-2:]

    assert "has no Onefold tables" in str(missing)
    assert "Run `onefold migrate --database postgresql://host/db` and" in str(missing)
    assert "is at schema 1" in str(old)
    assert "--schema app`" in str(old)


def test_the_command_for_an_outdated_schema_can_be_pasted_into_a_shell() -> None:
    url = "postgresql:///db?host=%2Ftmp&port=1"

    assert f"--database '{url}'` and" in str(SchemaOutdated(found=0, needed=5, where=url))
