"""What is stored of an exception: bounded, without secrets, and never failing itself."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from onefold import InvalidInput
from onefold.model.delivery import encode_error
from onefold.model.failure import (
    CAUSE_LENGTH,
    CAUSES,
    HEAD,
    TEXT_LENGTH,
    TRACE_LENGTH,
    described,
    shown,
)
from onefold.model.ids import parse_id
from onefold.model.json_text import decode_payload
from onefold.runtime import called


class CardDeclined(Exception):
    """A failure of the application's own."""


class Unspeakable(Exception):
    """One that fails when it is asked what it says."""

    def __str__(self) -> str:
        raise RuntimeError


def caught(function: Callable[[], object]) -> BaseException:
    """What `function` raises, as a worker catches it."""
    with pytest.raises(Exception) as info:  # noqa: PT011 - whichever it is
        function()
    return info.value


def charge(card: str = "4242-secret") -> None:
    raise CardDeclined(f"no funds on a card of {len(card)} digits")


def test_an_exception_that_was_raised_says_where() -> None:
    details = described(caught(charge))

    assert details["type"] == f"{__name__}.CardDeclined"
    assert details["message"] == "no funds on a card of 11 digits"
    assert details["traceback"].startswith("Traceback (most recent call last):\n  File ")
    assert "in charge" in details["traceback"]
    assert "raise CardDeclined" in details["traceback"]
    assert "causes" not in details
    assert described(caught(lambda: int("x")))["type"] == "ValueError"


def test_no_value_of_a_variable_is_kept() -> None:
    token = "hunter2"

    def log_in(password: str) -> None:
        raise PermissionError(len(password))

    assert token not in str(encode_error(caught(lambda: log_in(token))))


def test_causes_are_told_as_python_would() -> None:
    """What was being handled is one too, unless it is hidden."""

    def give_up() -> None:
        try:
            charge()
        except CardDeclined as error:
            raise ValueError("cannot pay") from error

    def clean_up() -> None:
        try:
            charge()
        finally:
            raise KeyError("row")

    def hide() -> None:
        try:
            charge()
        except CardDeclined:
            raise KeyError("row") from None

    details = described(caught(give_up))
    (cause,) = details["causes"]
    assert details["message"] == "cannot pay"
    assert (cause["type"], "in charge" in cause["traceback"]) == (f"{__name__}.CardDeclined", True)
    assert len(described(caught(clean_up))["causes"]) == 1
    assert "causes" not in described(caught(hide))


def test_a_chain_of_causes_is_cut_and_a_circle_told_once() -> None:
    error = Exception("last")
    for number in range(20):
        error, error.__cause__ = Exception(f"{number}"), error
    first, second = Exception("first"), Exception("second")
    first.__cause__, second.__cause__ = second, first

    assert len(described(error)["causes"]) == CAUSES
    assert [cause["message"] for cause in described(first)["causes"]] == ["second"]


def test_a_deep_recursion_is_told_by_its_end() -> None:
    def fall(depth: int) -> None:
        if depth == 0:
            charge()
        # On two lines, so that Python sees no repetition to shorten.
        if depth % 2:
            fall(depth - 1)
        else:
            fall(depth - 1)

    trace = described(caught(lambda: fall(500)))["traceback"]

    assert len(trace) <= TRACE_LENGTH + len(HEAD) + 2
    assert trace.startswith("Traceback (most recent call last):\n…\n  ")
    assert "raise CardDeclined" in trace


def test_messages_are_cut() -> None:
    def boast() -> None:
        raise ValueError("y" * 100_000) from ValueError("x" * 100_000)

    details = described(caught(boast))

    assert details["message"] == "y" * TEXT_LENGTH + "…"
    assert details["causes"][0]["message"] == "x" * CAUSE_LENGTH + "…"


def test_an_exception_that_cannot_be_shown_is_stored_all_the_same() -> None:
    def fail() -> None:
        raise Unspeakable

    stored = decoded(caught(fail))

    assert stored["message"] == "a Unspeakable that cannot be shown: RuntimeError"
    assert shown("plain") == "plain"


def test_the_machinery_between_a_worker_and_its_handler_is_left_out() -> None:
    async def in_a_thread() -> None:
        with ThreadPoolExecutor(1) as threads:
            await asyncio.get_running_loop().run_in_executor(threads, charge)

    with ThreadPoolExecutor(1) as threads:
        error = threads.submit(charge).exception()
    assert error is not None

    assert described(error)["traceback"].count("File ") == 1
    assert "in charge" in described(caught(lambda: asyncio.run(in_a_thread())))["traceback"]


def test_what_a_handler_calls_through_onefold_is_shown_without_onefold() -> None:
    def handle() -> None:
        called(charge, ())

    trace = described(caught(handle))["traceback"]
    misused = described(caught(lambda: parse_id("no id")))["traceback"]

    assert ["in handle" in trace, "in charge" in trace, "onefold/runtime.py" in trace] == [1, 1, 0]
    assert "parse_id(" in misused
    assert "in parse_id" not in misused


@pytest.mark.parametrize(
    ("refuse", "is_kept"), [(lambda: parse_id("no id"), False), (lambda: called(int, ("x",)), True)]
)
def test_where_there_is_nothing_but_machinery_it_is_kept_unless_it_refuses(
    refuse: Callable[[], object], is_kept: object
) -> None:
    error = caught(refuse)
    ours = error.__traceback__
    while ours is not None and not ours.tb_frame.f_globals["__name__"].startswith("onefold"):
        ours = ours.tb_next

    assert ("traceback" in described(error.with_traceback(ours))) == is_kept


def test_a_group_says_where_each_of_its_exceptions_is_from() -> None:
    def gather() -> None:
        inner = BaseExceptionGroup("inner", [caught(charge)])
        raise BaseExceptionGroup("outer", [KeyError("row"), inner])

    trace = described(caught(gather))["traceback"]

    assert ["in gather" in trace, "KeyError: 'row'" in trace, "in charge" in trace] == [True] * 3


def decoded(error: object) -> Any:
    text = encode_error(error)
    assert text is not None
    return decode_payload(text)


@pytest.mark.parametrize("text", ["a\x00b", "half \ud800", "\udfff"])
def test_a_failure_never_fails_to_be_stored_because_of_what_it_says(text: str) -> None:
    """With a NUL, `error::jsonb`, as in a look for a type of failure, would fail for every job."""
    escaped = text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")

    assert decoded(ValueError(text))["message"] == escaped
    assert decoded({text: [text, {"deep": (text,)}]}) == {escaped: [escaped, {"deep": [escaped]}]}
    assert "\\u0000" not in str(encode_error({text: [text, {"deep": (text,)}]}))


def test_a_mapping_that_cannot_be_stored_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput) as caught:
        encode_error({"cause": object()})

    assert caught.value.field == "error"
