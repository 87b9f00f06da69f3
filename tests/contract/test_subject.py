"""A subject forwards the calls of Onefold, and the calls of its nouns, in its own way."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from onefold_contract.subject import method
from onefold_contract.subjects import AsyncSubject, Subject, SyncSubject, WithinSqlite3


class Keys:
    def find(self) -> str:
        return "blocking"

    async def afind(self) -> str:
        return "awaited"


class Calls:
    keys = Keys()


@pytest.fixture(params=[SyncSubject, AsyncSubject, WithinSqlite3])
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subject]:
    kind: type[Subject] = request.param
    subject = kind(f"sqlite:///{tmp_path}/onefold.db")
    subject.open()
    yield subject
    subject.close()


def test_a_call_and_a_call_of_a_noun_return_values(subject: Subject) -> None:
    job_id = subject.enqueue("email", {"to": 42}).id
    (job,) = subject.deliveries.take(worker="worker", lease=timedelta(minutes=1))
    assert (job.id, job.payload) == (job_id, {"to": 42})


def test_a_call_that_only_onefold_has_works_for_a_tenant(subject: Subject) -> None:
    acme = subject.tenant("acme")
    acme.enqueue("email")
    assert acme.take_one().tenant == "acme"
    assert len(acme.find()) == 1
    assert len(subject.find()) == 0


def test_a_misspelled_call_is_an_attribute_error(subject: Subject) -> None:
    untyped: Any = subject
    with pytest.raises(AttributeError, match="enqeue"):
        untyped.enqeue("email")
    with pytest.raises(AttributeError, match="takke"):
        untyped.deliveries.takke()


def test_a_path_through_a_noun_leads_to_the_method_and_to_its_twin() -> None:
    assert method(Calls(), "keys.find").__name__ == "find"
    assert method(Calls(), "keys.find", prefix="a").__name__ == "afind"
