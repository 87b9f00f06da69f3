"""One request from Python and from SQL has the same fingerprint, hash and shard."""

import json
import math
import struct
from typing import Any

import msgspec
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onefold import Onefold
from onefold.errors import InvalidInput
from onefold.model.ids import hash12, shard_of
from onefold.model.json_text import decode_payload, encode_payload, sorted_payload
from onefold.model.unique import request_fingerprint
from tests.sql_function.from_sql import call

Connection = psycopg.Connection[Any]
one_schema_for_all = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])

# PostgreSQL's text has no NUL.
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
finite = st.floats(allow_nan=False, allow_infinity=False)
scalars = st.one_of(st.none(), st.booleans(), st.integers(), finite, words)
payloads = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(words, inner)),
    max_leaves=30,
)


def from_bits(bits: int) -> float:
    (found,) = struct.unpack("<d", struct.pack("<Q", bits))
    return found if math.isfinite(found) else 0.0


def sorted_in_sql(connection: Connection, text: str) -> str:
    ((found,),) = connection.execute("select _sorted_payload(%s)", [text]).fetchall()
    assert isinstance(found, str)
    return found


@one_schema_for_all
@given(payload=payloads)
def test_a_payload_has_the_same_sorted_text(
    connection: Connection, schema: str, onefold: Onefold, payload: Any
) -> None:
    # Also with spaces, or with escapes.
    for text in (json.dumps(payload, indent=1), json.dumps(payload), encode_payload(payload)):
        assert sorted_in_sql(connection, text) == sorted_payload(payload)
    onefold.keys.erase(tenant="")
    first = onefold.enqueue("k", payload, unique_key="unique", idempotency_key="publish")
    for key in ({"unique_key": "unique"}, {"idempotency_key": "publish"}):
        again = call(connection, schema, {"kind": "k", "payload": json.dumps(payload), **key})
        assert (again.id, again.duplicate, again.mismatch) == (first.id, True, False)


@one_schema_for_all
@given(st.lists(st.one_of(finite, st.integers(0, 2**64 - 1).map(from_bits))))
def test_floats_have_the_same_text(connection: Connection, numbers: list[float]) -> None:
    text = json.dumps(numbers)
    assert sorted_in_sql(connection, text) == msgspec.json.encode(numbers).decode()


def test_floats_at_the_edges_of_every_rule_have_the_same_text(connection: Connection) -> None:
    powers = [float(f"1e{exponent}") for exponent in range(-324, 309)]
    binary = [2.0**exponent for exponent in range(-1074, 1024)]
    # Midway between two floats, where PostgreSQL prefers a longer text.
    midway = [5e22, 1e23, 9007199254740993.0, 2.0**122, 8.41e21, 9.5e-5, 123456789012345680.0]
    values = [*powers, *binary, *midway]
    near = [math.nextafter(value, way) for value in values for way in (0, math.inf)]
    numbers = [value for value in (*values, *near) if math.isfinite(value)]
    assert sorted_in_sql(connection, json.dumps(numbers)) == msgspec.json.encode(numbers).decode()


def test_other_texts_of_a_value_are_read_alike(connection: Connection) -> None:
    for text in (
        "1E5", "-0", "-0.0", "0e7", "1e-400", "-1e-400", "2.4703282292062327e-324", "3e-324", " 7 ",
        "1.7976931348623158e308", '{"a": 1, "a": 2}', r'"\/\ud83d\ude00\u00e9"', '"\x7f\u2028"',
        "12345678901234567890123", "\t[ ]\r\n", "100.0e0", "0.000000000000000000001e30",
    ):  # fmt: skip
        assert sorted_in_sql(connection, text) == sorted_payload(decode_payload(text)), text


def test_numbers_that_the_library_cannot_read_are_rejected(
    connection: Connection, schema: str
) -> None:
    for text in ("1e309", "-1.8e308", "1e999999999", "9" * 309 + ".5"):
        with pytest.raises(InvalidInput):
            decode_payload(text)
        with pytest.raises(psycopg.DataError):
            call(connection, schema, {"kind": "k", "payload": f'{{"deep": [{text}]}}'})


@one_schema_for_all
@given(st.lists(words, min_size=1, max_size=5))
def test_keys_have_the_same_hash_and_fingerprint(connection: Connection, parts: list[str]) -> None:
    row = connection.execute(
        "select _hash12(variadic p.parts), _fingerprint(variadic p.parts)"
        " from (select %(parts)s::text[]) as p (parts)",
        {"parts": [*parts, "null"]},
    ).fetchone()
    assert row == (hash12(*parts, "null"), request_fingerprint(*parts, payload=None))


def test_a_job_is_on_the_shard_of_its_id(
    connection: Connection, schema: str, onefold: Onefold
) -> None:
    for key in ({}, {"unique_key": "k"}, {"idempotency_key": "K"}):
        job_id = call(connection, schema, {"kind": "k", **key}).id
        assert onefold.get(job_id) is not None
        row = connection.execute("select shard from job where id = %s", [job_id]).fetchone()
        assert row == (shard_of(job_id, 3),)
