"""Deliveries: what a worker may ask for, and what it is told."""

from __future__ import annotations

from typing import Any

import pytest

from onefold import InvalidInput
from onefold.model.delivery import (
    encode_error,
)
from onefold.model.json_text import decode_payload

# --- failures -------------------------------------------------------------------------------------


def decoded(error: object) -> Any:
    text = encode_error(error)
    assert text is not None
    return decode_payload(text)


@pytest.mark.parametrize("text", ["a\x00b", "half \ud800", "\udfff"])
def test_a_failure_never_fails_to_be_stored_because_of_what_it_says(text: str) -> None:
    escaped = text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")

    assert decoded(ValueError(text))["message"] == escaped
    assert decoded({text: [text, {"deep": (text,)}]}) == {escaped: [escaped, {"deep": [escaped]}]}


def test_no_failure_has_a_nul_for_postgres_to_stumble_over() -> None:
    """`error::jsonb`, as in a look for a type of failure, would fail for every job."""
    assert "\\u0000" not in str(encode_error({"a\x00": {"b": ["\x00"]}, "c": "\x00"}))


def test_a_mapping_that_cannot_be_stored_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput) as caught:
        encode_error({"cause": object()})

    assert caught.value.field == "error"
