"""What seldom happens to settings, rates, errors and conversions, and must be told all the same."""

import traceback
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from onefold.errors import InvalidInput
from onefold.model.delivery import encode_error
from onefold.model.json_text import dumped, from_json, to_json
from onefold.model.limit import Limit
from onefold.model.step import StepRow


def test_a_rate_of_an_odd_period_is_written_with_its_length() -> None:
    rate = Limit(rate=(3, timedelta(milliseconds=1500))).rate
    assert str(rate) == "3/1500ms"


def test_an_error_without_a_traceback_is_stored_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gone(*_: object, **__: object) -> None:
        raise OSError("no such file")

    with pytest.raises(ZeroDivisionError) as caught:
        _ = 1 / 0
    monkeypatch.setattr(traceback.StackSummary, "extract", gone)
    stored = encode_error(caught.value)
    assert stored is not None
    assert "no traceback: OSError" in stored


def test_a_set_whose_elements_cannot_be_compared_is_written_somehow() -> None:
    written = to_json({"inside": {1, "a"}}, "payload", sorts=True)
    assert sorted(map(str, written["inside"])) == ["1", "a"]


def test_a_value_with_keys_that_json_does_not_have_names_its_field() -> None:
    with pytest.raises(InvalidInput, match="result cannot be written as JSON"):
        to_json({(1, 2): "a"}, "result")


class Model:
    """Dumps as pydantic's do."""

    def __init__(self, **fields: Any) -> None:
        self._fields = fields

    def model_dump(self, **_: object) -> dict[str, Any]:
        return self._fields


class Older(Model):
    """Cannot be told to take its fields by name, as pydantic's before 2.11."""

    @classmethod
    def model_validate_json(cls, text: bytes) -> "Older":
        return cls(**msgspec.json.decode(text))


def test_an_older_model_is_read_as_it_can_be() -> None:
    assert from_json({"note": "a"}, Older).model_dump() == {"note": "a"}


def test_asterisks_that_are_no_secret_are_text() -> None:
    assert dumped(Model(note="**********", list=["a"])) == {"note": "**********", "list": ["a"]}


def test_a_step_of_which_nothing_is_known_has_no_attempts() -> None:
    assert StepRow("step", "owner", 0, 1, None, 0, 0, None, None).notes.attempts == 0
