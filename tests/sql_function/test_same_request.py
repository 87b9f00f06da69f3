"""One request, from Python and from SQL: one fingerprint, one hash, one shard."""

from __future__ import annotations

import json
import math
import struct
from typing import TYPE_CHECKING, Any

import msgspec
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onefold.errors import InvalidInput
from onefold.model.canonical import decode_payload, encode_payload, sorted_payload
from onefold.model.identity import hash12, shard_of
from onefold.model.unique import request_fingerprint

if TYPE_CHECKING:
    from onefold import Onefold

one_schema_for_all = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])

words = st.text(st.characters(exclude_categories=["Cs"]))
finite = st.floats(allow_nan=False, allow_infinity=False)
scalars = st.one_of(st.none(), st.booleans(), st.integers(), finite, words)
payloads = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(words, inner)),
    max_leaves=30,
)
keys = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=40)


def from_bits(bits: int) -> float:
    (found,) = struct.unpack("<d", struct.pack("<Q", bits))
    return found if math.isfinite(found) else 0.0


def spelled(connection: psycopg.Connection[Any], text: str) -> str:
    """What the function makes of a payload before it is hashed."""
    ((found,),) = connection.execute("select _sorted_payload(%s)", [text]).fetchall()
    assert isinstance(found, str)
    return found


@one_schema_for_all
@given(payload=payloads)
def test_a_payload_is_spelled_as_the_library_spells_it(
    connection: psycopg.Connection[Any], payload: Any
) -> None:
    # By other writers of JSON, too: with spaces, with escapes, and with neither.
    for text in (json.dumps(payload, indent=1), json.dumps(payload), encode_payload(payload)):
        assert spelled(connection, text) == sorted_payload(payload)


@one_schema_for_all
@given(words, payloads)
def test_so_are_characters_that_stand_for_others_on_the_way(
    connection: psycopg.Connection[Any], word: str, payload: Any
) -> None:
    """PostgreSQL has no NUL, and the backslash is put aside while one is looked for."""
    tricky = {f"\x00{word}\\u0000": ["\x01", "\x01\x01", "\x00\x02\\", payload], "\x01\x02": word}
    assert spelled(connection, json.dumps(tricky)) == sorted_payload(tricky)


@one_schema_for_all
@given(st.lists(st.one_of(finite, st.integers(0, 2**64 - 1).map(from_bits))))
def test_floats_are_spelled_shortest(
    connection: psycopg.Connection[Any], numbers: list[float]
) -> None:
    text = json.dumps(numbers)
    assert spelled(connection, text) == msgspec.json.encode(numbers).decode()


def test_floats_at_the_edges_of_every_rule_are_spelled_shortest(
    connection: psycopg.Connection[Any],
) -> None:
    powers = [float(f"1e{exponent}") for exponent in range(-324, 309)]
    binary = [2.0**exponent for exponent in range(-1074, 1024)]
    # Midway between two floats, where PostgreSQL prefers a longer text.
    midway = [5e22, 1e23, 9007199254740993.0, 2.0**122, 8.41e21, 9.5e-5, 123456789012345680.0]
    values = [*powers, *binary, *midway]
    near = [math.nextafter(value, way) for value in values for way in (0, math.inf)]
    numbers = [value for value in (*values, *near) if math.isfinite(value)]
    assert spelled(connection, json.dumps(numbers)) == msgspec.json.encode(numbers).decode()


@pytest.mark.parametrize(
    "text",
    [
        "1E5", "-0", "-0.0", "0e7", "1e-400", "-1e-400", "2.4703282292062327e-324", "3e-324", " 7 ",
        "1.7976931348623158e308", '{"a": 1, "a": 2}', r'"\/\ud83d\ude00\u00e9"', '"\x7f\u2028"',
        "12345678901234567890123", "\t[ ]\r\n", "100.0e0", "0.000000000000000000001e30",
    ],
)  # fmt: skip
def test_every_other_spelling_is_read_as_the_library_reads_it(
    connection: psycopg.Connection[Any], text: str
) -> None:
    assert spelled(connection, text) == sorted_payload(decode_payload(text))


@pytest.mark.parametrize("text", ["1e309", "-1.8e308", "1e999999999", "9" * 309 + ".5"])
def test_a_number_that_the_library_cannot_read_is_refused(
    connection: psycopg.Connection[Any], text: str
) -> None:
    with pytest.raises(InvalidInput):
        decode_payload(text)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="payload holds a number"):
        connection.execute("select onefold_enqueue('k', %s)", [f'{{"deep": [{text}]}}'])


@one_schema_for_all
@given(payload=payloads)
def test_neither_is_a_mismatch_of_the_other(
    connection: psycopg.Connection[Any], onefold: Onefold, payload: Any
) -> None:
    onefold.erase(tenant="")
    first = onefold.enqueue("k", payload, unique_key="unique", idempotency_key="publish")
    row = connection.execute(
        "select id::text, duplicate, mismatch"
        " from onefold_enqueue('k', %(text)s, unique_key => 'unique')"
        " union all select id::text, duplicate, mismatch"
        " from onefold_enqueue('k', %(text)s, idempotency_key => 'publish')",
        {"text": json.dumps(payload)},
    ).fetchall()
    assert row == [(first.id, True, False)] * 2


@one_schema_for_all
@given(st.lists(keys, min_size=1, max_size=5))
def test_parts_of_a_key_are_hashed_alike(
    connection: psycopg.Connection[Any], parts: list[str]
) -> None:
    row = connection.execute(
        "select _hash12(variadic p.parts), _request_fingerprint(variadic p.parts)"
        " from (select %(parts)s::text[]) as p (parts)",
        {"parts": [*parts, "null"]},
    ).fetchone()
    assert row == (hash12(*parts, "null"), request_fingerprint(*parts, payload=None))


@pytest.mark.parametrize("options", ["", "unique_key => 'k'", "idempotency_key => 'K'"])
def test_a_job_lives_on_the_shard_that_its_id_names(
    connection: psycopg.Connection[Any], onefold: Onefold, options: str
) -> None:
    text = f"select id::text from onefold_enqueue(kind => 'k'{options and ', '}{options})"
    (((job_id),),) = connection.execute(text.encode()).fetchall()
    job = onefold.get(job_id)
    assert job is not None
    assert job.shard == shard_of(job_id, 3)
