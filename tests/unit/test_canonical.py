"""Payloads as text: stored, sorted, canonical."""

import enum
import json
import math
import re
import struct
import sys
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onefold.errors import InvalidInput
from onefold.model.json_text import (
    MAX_DEPTH,
    canonical_json,
    decode_payload,
    encode_payload,
    is_array,
    is_object,
    sorted_payload,
)

# RFC 8785, appendix B: the bits of a double, and how ECMAScript writes it.
NUMBERS = [
    ("0000000000000000", "0"),
    ("8000000000000000", "0"),
    ("0000000000000001", "5e-324"),
    ("8000000000000001", "-5e-324"),
    ("7fefffffffffffff", "1.7976931348623157e+308"),
    ("ffefffffffffffff", "-1.7976931348623157e+308"),
    ("4340000000000000", "9007199254740992"),
    ("c340000000000000", "-9007199254740992"),
    ("4430000000000000", "295147905179352830000"),
    ("44b52d02c7e14af5", "9.999999999999997e+22"),
    ("44b52d02c7e14af6", "1e+23"),
    ("44b52d02c7e14af7", "1.0000000000000001e+23"),
    ("444b1ae4d6e2ef4e", "999999999999999700000"),
    ("444b1ae4d6e2ef4f", "999999999999999900000"),
    ("444b1ae4d6e2ef50", "1e+21"),
    ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
    ("3eb0c6f7a0b5ed8d", "0.000001"),
    ("41b3de4355555553", "333333333.3333332"),
    ("41b3de4355555554", "333333333.33333325"),
    ("41b3de4355555555", "333333333.3333333"),
    ("41b3de4355555556", "333333333.3333334"),
    ("41b3de4355555557", "333333333.33333343"),
    ("becbf647612f3696", "-0.0000033333333333333333"),
    ("43143ff3c1cb0959", "1424953923781206.2"),
]
NOT_FINITE = [math.nan, math.inf, -math.inf]
SURROGATES: list[Any] = ["\ud800", ["a\udfff"], {"\ud83d": 1}]
WIDE = 10**5000 + 7  # more digits than Python spells at once

text = st.text(st.characters(exclude_categories=["Cs"]))
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
) | text
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(text, inner), max_leaves=20
)


def nested(depth: int, *, objects: bool = False) -> Any:
    value: Any = {} if objects else []
    for _ in range(depth - 1):
        value = {"in": value} if objects else [value]
    return value


def without_last_commas(canonical: bytes) -> str:
    """Ordinary JSON again: the commas before a closing bracket go, those in strings stay."""
    return re.sub(
        r'("(?:[^"\\]|\\.)*")|,(?=[\]}])', lambda match: match[1] or "", canonical.decode()
    )


def is_same(read: Any, value: Any) -> bool:
    """Whether a value was read back; a float without a fraction may come back as an integer."""
    if is_object(value):
        return read.keys() == value.keys() and all(is_same(read[k], value[k]) for k in value)
    if is_array(value):
        return len(read) == len(value) and all(map(is_same, read, value))
    if isinstance(value, float):
        return float(read) == value
    return type(read) is type(value) and read == value


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "not the text itself"


class Whole(int):
    pass


class Real(float):
    pass


class Odd(enum.Enum):
    NOTHING = math.nan


@dataclass
class Point:
    x: float


class Address(msgspec.Struct):
    street: str
    number: int | None = None


SPELLINGS: list[tuple[Any, str]] = [
    (None, "null"),
    (True, "true"),
    (False, "false"),
    (0, "0"),
    (-12, "-12"),
    (2**64 + 1, "18446744073709551617"),
    (10**21, "1" + "0" * 21),
    ([WIDE, -WIDE], f"[1{'0' * 4999}7,-1{'0' * 4999}7,]"),
    (1.0, "1"),
    (-0.0, "0"),
    (-1.5, "-1.5"),
    (1e20, "100000000000000000000"),
    (1e21, "1e+21"),
    (1e-7, "1e-7"),
    (1.5e-9, "1.5e-9"),
    (1e-6, "0.000001"),
    (0.5, "0.5"),
    ("", '""'),
    ('"\\/', '"\\"\\\\/"'),
    ("\b\f\n\r\t\x00\x1f\x7f", '"\\b\\f\\n\\r\\t\\u0000\\u001f\x7f"'),
    ("é€\u2028😀", '"é€\u2028😀"'),
    ([], "[]"),
    ({}, "{}"),
    ([1, 2], "[1,2,]"),
    ({"a": 1}, '{"a":1,}'),
    ({"b": [{}], "a": {"d": None, "c": [[]]}}, '{"a":{"c":[[],],"d":null,},"b":[{},],}'),
    (Text("text"), '"text"'),
    (Whole(3), "3"),
    (Real(3), "3"),
]


# --- canonical ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bits", "written"), NUMBERS)
def test_a_float_is_written_as_ecmascript_writes_it(bits: str, written: str) -> None:
    (value,) = struct.unpack(">d", bytes.fromhex(bits))

    assert canonical_json(value).decode() == written


@pytest.mark.parametrize(("value", "written"), SPELLINGS)
def test_a_value_has_one_canonical_spelling(value: Any, written: str) -> None:
    assert canonical_json(value).decode() == written


def test_members_are_sorted_by_utf16_code_units() -> None:
    # The example of RFC 8785, section 3.2.3: by code points the emoji would come last.
    names = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]

    written = canonical_json(dict.fromkeys(names, 0))

    assert "".join(json.loads(without_last_commas(written))) == "\r1\u0080ö€\U0001f600\ufb33"


@settings(deadline=None)
@given(values)
def test_canonical_json_says_the_value_and_nothing_else(value: Any) -> None:
    written = canonical_json(value)

    read = json.loads(without_last_commas(written))
    assert is_same(read, value)
    assert canonical_json(read) == written


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        *[({"x": [number]}, "holds NaN or an infinity") for number in NOT_FINITE],
        *[(text, "holds text that is not valid Unicode") for text in SURROGATES],
        (object(), "holds a builtins.object, which JSON cannot hold"),
        ((1, 2), "holds a builtins.tuple, which JSON cannot hold"),
        (b"x", "holds a builtins.bytes, which JSON cannot hold"),
        ({"x": {1}}, "holds a builtins.set, which JSON cannot hold"),
        ({1: "one"}, "must have text for the names"),
    ],
)
def test_canonical_json_refuses_what_is_no_json_value(value: Any, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=f"payload {re.escape(sentence)}"):
        canonical_json(value)


# --- stored ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ({"b": 1, "a": [True, None, 1.0]}, '{"b":1,"a":[true,null,1.0]}'),
        (datetime(2026, 1, 2, tzinfo=UTC), '"2026-01-02T00:00:00Z"'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (Decimal("1.50"), '"1.50"'),
        (Point(1.5), '{"x":1.5}'),
        (Address("Main"), '{"street":"Main","number":null}'),
        ((1, (2, None)), "[1,[2,null]]"),
        ({1: "one", 2.5: "more"}, '{"1":"one","2.5":"more"}'),
        ([Text("text"), Whole(3), Real(2.5)], '["text",3,2.5]'),
        ({"said": msgspec.Raw(b'{"x":null}')}, '{"said":{"x":null}}'),
        ("null", '"null"'),
        ("é😀", '"é😀"'),
        ([2**64, -(2**70)], "[18446744073709551616,-1180591620717411303424]"),
    ],
)
def test_a_payload_is_stored_as_compact_json(value: Any, stored: str) -> None:
    assert encode_payload(value) == stored


@settings(deadline=None)
@given(values)
def test_a_stored_payload_comes_back_as_it_was(value: Any) -> None:
    stored = encode_payload(value)

    assert repr(decode_payload(stored)) == repr(value)
    assert json.loads(stored) == value


@pytest.mark.parametrize(
    "value", [[WIDE, -WIDE], {"n": [WIDE, 1.5, True, None, "x"]}, {"t": [[WIDE]]}]
)
def test_an_integer_of_thousands_of_digits_is_stored_exactly_whatever_python_allows(
    value: Any,
) -> None:
    allowed = sys.get_int_max_str_digits()
    for limit in (allowed, 0):
        sys.set_int_max_str_digits(limit)
        try:
            assert decode_payload(encode_payload(value)) == value
        finally:
            sys.set_int_max_str_digits(allowed)


@pytest.mark.parametrize("bad", [*NOT_FINITE, Real("nan"), Odd.NOTHING, Point(math.inf)])
@pytest.mark.parametrize("encode", [encode_payload, sorted_payload])
def test_a_payload_with_nan_or_an_infinity_is_refused(encode: Any, bad: Any) -> None:
    for value in (bad, [bad], (bad,), {"x": {"y": [None, bad]}}, [WIDE, bad]):
        with pytest.raises(InvalidInput, match="payload holds NaN or an infinity"):
            encode(value)


@pytest.mark.parametrize("encode", [encode_payload, sorted_payload])
@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"x": deque([1])}, "holds a collections.deque, which JSON cannot hold"),
        ([WIDE, pytest], "holds a builtins.module, which JSON cannot hold"),
        *[({key: 1}, "must have text or numbers for keys") for key in (None, True, (1, 2))],
        ({WIDE: 1}, "cannot be written as JSON"),
        *[(text, "holds text that is not valid Unicode") for text in SURROGATES],
        ([Text("\ud800")], "holds text that is not valid Unicode"),
        ([WIDE, "\ud800"], "holds text that is not valid Unicode"),
        ([None, msgspec.Raw(b"nul")], "cannot be written as JSON"),
        ({"a": msgspec.Raw(b"")}, "cannot be written as JSON"),
        *[(msgspec.Raw(raw), "") for raw in (b"nul", b"", b"NaN", b"1e999", b"[1,]", b'"\xff"')],
    ],
)
def test_a_payload_that_json_cannot_hold_is_refused(encode: Any, value: Any, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=f"^payload {re.escape(sentence)}"):
        encode(value)


def test_a_payload_that_is_raw_json_is_stored_as_it_is_and_sorted_by_its_values() -> None:
    raw = msgspec.Raw(b'{ "b": 1e5, "a": [2.00] }')

    assert encode_payload(raw) == '{ "b": 1e5, "a": [2.00] }'
    assert sorted_payload(raw) == '{"a":[2.0],"b":100000.0}'


@pytest.mark.parametrize("encode", [canonical_json, encode_payload])
@pytest.mark.parametrize("objects", [False, True])
def test_a_value_goes_as_deep_as_is_allowed_and_no_deeper(encode: Any, *, objects: bool) -> None:
    deepest = nested(MAX_DEPTH, objects=objects)
    assert decode_payload(encode_payload(deepest)) == deepest
    encode(deepest)
    endless: list[Any] = []
    endless.append(endless)

    for deeper in (*(nested(n, objects=objects) for n in (MAX_DEPTH + 1, 100_000)), endless):
        with pytest.raises(InvalidInput, match="payload must not nest deeper than 256 levels"):
            encode(deeper)


def test_arrays_and_objects_count_and_brackets_in_text_do_not() -> None:
    alternating: Any = 1
    for _ in range(MAX_DEPTH // 2):
        alternating = {"in": [alternating]}
    wide = [{"x": [i], "text": '[[{{\\"' * 3 + "\\"} for i in range(MAX_DEPTH)]
    text_only = {"text": "[" * 10 * MAX_DEPTH + '"' + "\\"}
    for value in (alternating, wide, text_only):
        assert decode_payload(encode_payload(value)) == value

    for value in ([alternating], [{"text": '"]]]]"'}, nested(MAX_DEPTH)]):
        with pytest.raises(InvalidInput, match="nest deeper"):
            encode_payload(value)


# --- read -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "sentence"),
    [
        *[
            (text, "is not JSON")
            for text in ("", "{", "nul", "[1,]", '"\\ud800"', '"\ud800"', "[1] 2", "'x'", "NaN")
        ],
        # A wide integer is read by another decoder.
        (f"[{'1' * 5000},", "is not JSON"),
        *[(text, "holds NaN or") for text in ("1e999", "[-1e999]", f"[{'1' * 5000},NaN]")],
    ],
)
def test_text_that_is_not_json_is_refused(stored: str, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=f"payload {sentence}"):
        decode_payload(stored)


@pytest.mark.parametrize("first", ["1", "1" * 5000])
def test_text_that_nests_deeper_than_the_stack_is_refused(first: str) -> None:
    with pytest.raises(InvalidInput, match="payload must not nest deeper"):
        decode_payload(f"[{first},{'[' * 100_000}{']' * 100_000}]")


# --- sorted ---------------------------------------------------------------------------------------


def test_the_sorted_form_has_sets_numbers_for_names_and_integers_of_any_size() -> None:
    assert sorted_payload({"tags": {"c", "a", "b"}}) == '{"tags":["a","b","c"]}'
    assert sorted_payload({10: "ten", 9: "nine"}) == sorted_payload({"9": "nine", "10": "ten"})
    assert sorted_payload({"n": WIDE}) == f'{{"n":1{"0" * 4999}7}}'


@settings(deadline=None)
@given(values)
def test_equal_payloads_have_equal_sorted_forms(value: Any) -> None:
    assert sorted_payload(value) == sorted_payload(decode_payload(encode_payload(value)))
