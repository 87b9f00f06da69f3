"""The errors: their tree, their sentences, their evidence."""

import copy
import inspect
import pickle
import re
from datetime import UTC, datetime, timedelta

import pytest

from onefold import errors

MOMENT = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECONDS = timedelta(seconds=1.5)


class Connection:
    """Stands for a driver's connection."""


EXAMPLES: list[errors.OnefoldError] = [
    errors.InvalidInput("kind", "must not be empty"),
    errors.InvalidInput("kind", "must not be empty", item=3),
    errors.ConflictingOptions("delay", "cannot be given together with run_at"),
    errors.NoTransaction(Connection()),
    errors.WrongConnection(
        Connection(), "is a sync connection. Call the method without the leading a."
    ),
    errors.WouldDeadlock(),
    errors.ShardsDiffer(requested=4, found=1, where="sqlite:///app.db"),
    errors.Closed(),
    errors.AlreadyEnqueued(key="k", holder_id="1", state="ready", item=0),
    errors.KeyReused(key="k"),
    errors.KeyReused(key="k", holder_id="1", item=2),
    errors.Busy(key="k", retry_after=SECONDS),
    errors.OutcomeUnknown(key="k"),
    errors.OutcomeUnknown(key="k", since=MOMENT),
    errors.StepFailed(step="charge", error_type="bank.CardError", reason="declined"),
    errors.StepsChanged(requested="refund", expected="charge"),
    errors.LeaseLost("job 1", fence=7),
    errors.JobNotFound("1"),
    errors.WrongState("1", state="completed", wanted="a dead or cancelled job"),
    errors.Gone("1"),
    errors.JobFailed("1", kind="email", state="dead", reason="poison", error=None),
    errors.JobFailed(
        "1", kind="email", state="dead", reason=None, error={"type": "E", "message": "m"}
    ),
    errors.ResultTimeout("1", state="running", timeout=SECONDS),
    errors.TooOld(key="k", issued_at=MOMENT, horizon=MOMENT),
    errors.ScheduleNotFound("nightly"),
    errors.QueueNotEmpty("payments"),
    errors.QueueNotFound("payments"),
    errors.JobTimeout(SECONDS),
    errors.ProcessDied(-9),
    errors.ProcessDied(7),
    errors.ProcessDied(None),
    errors.DatabaseBusy("another transaction holds this key.", waited=SECONDS),
    errors.DatabaseUnavailable("postgresql://host/db", "the disk is full."),
    errors.SerializationConflict("could not serialize access"),
    errors.SchemaTooNew(found=7, needed=6, known=5, where="sqlite:///app.db"),
    errors.SchemaOutdated(found=2, needed=2, where="sqlite:///app.db", unreleased=True),
    errors.SchemaOutdated(found=0, needed=2, where="postgresql://host/db"),
    errors.SchemaOutdated(found=1, needed=2, where="postgresql://host/db", schema="app"),
]


def classes() -> list[type[errors.OnefoldError]]:
    return [
        value
        for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, errors.OnefoldError)
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
        kind.__name__: None if kind is errors.OnefoldError else drawn_parent(kind)
        for kind in classes()
    }


def drawn_parent(kind: type[errors.OnefoldError]) -> str:
    # ConflictingOptions is an InvalidInput, so that whoever catches bad input catches it too; the
    # drawing shows it beside its parent, since to a reader it is one more way to call us wrongly.
    return "UsageError" if kind is errors.ConflictingOptions else kind.__bases__[0].__name__


def test_every_error_has_an_example_here() -> None:
    assert {type(error) for error in EXAMPLES} == set(classes()) - {
        errors.OnefoldError,
        errors.UsageError,
        errors.Conflict,
        errors.WorkFailed,
        errors.DatabaseError,
    }


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_is_a_sentence_with_its_evidence_and_a_status_and_survives_pickling(
    error: errors.OnefoldError,
) -> None:
    message = str(error)
    assert message == " ".join(message.split())
    assert message.endswith(".") or isinstance(error, errors.InvalidInput)
    assert {*error.evidence} >= {name for name in annotations_of(type(error)) if name != "status"}
    for copied in (error, pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(copied) is type(error)
        assert (str(copied), copied.args) == (message, error.args)
        assert copied.evidence == error.evidence
        assert {name: getattr(copied, name) for name in error.evidence} == error.evidence
    match error:
        case errors.UsageError():
            assert error.status == 400
        case errors.SerializationConflict() | errors.Conflict():
            assert 404 <= error.status < 500
        case errors.WorkFailed():
            assert error.status == 500
        case _:
            assert error.status == 503


def annotations_of(kind: type[errors.OnefoldError]) -> set[str]:
    return {
        name
        for parent in kind.__mro__
        if parent is not errors.OnefoldError and issubclass(parent, errors.OnefoldError)
        for name in inspect.get_annotations(parent)
    }


def test_a_connection_is_named_and_a_command_can_be_pasted_into_a_shell() -> None:
    error = errors.NoTransaction(Connection())
    url = "postgresql:///db?host=%2Ftmp&port=1"

    assert error.evidence["connection"] == f"{__name__}.Connection"
    assert str(error).startswith(f"{__name__}.Connection has no open transaction")
    assert f"--database '{url}'` and" in str(errors.SchemaOutdated(found=0, needed=5, where=url))
