"""How a delivery may end, as values that can be returned and raised."""

import pickle
from datetime import timedelta
from typing import Any

import pytest

from onefold import Bury, Cancel, Defer, InvalidInput, Retry
from onefold.model.outcome import Outcome

SECOND = timedelta(seconds=1)
ALL: list[Outcome] = [Retry(), Retry(SECOND), Defer(SECOND), Bury("gone"), Cancel("not wanted")]


@pytest.mark.parametrize("outcome", ALL, ids=repr)
def test_an_outcome_survives_pickling(outcome: Outcome) -> None:
    copied = pickle.loads(pickle.dumps(outcome))

    assert type(copied) is type(outcome)
    assert vars(copied) == vars(outcome)


@pytest.mark.parametrize("kind", [Retry, Defer])
@pytest.mark.parametrize("after", [timedelta(microseconds=-1), 5, "soon", timedelta.max])
def test_a_time_that_cannot_be_meant_is_refused_where_it_is_written(kind: Any, after: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^after "):
        kind(after)
