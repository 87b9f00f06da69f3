"""Keys derived from payloads, and fingerprints of requests."""

import copy
import hashlib
import math
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onefold.errors import ConflictingOptions, InvalidInput
from onefold.model.unique import Unique, fingerprint, request_fingerprint

EMAIL = {"to": "test@test.com", "subject": "Example"}
NOON = datetime(2026, 3, 1, 12, 34, 56, 789_999, tzinfo=UTC)
NOON_HOUR = 1_772_366_400_000  # 2026-03-01T12:00:00Z


def key_of(canonical: str, kind: str = "k") -> str:
    """The key of what has this canonical JSON."""
    return f"{kind}:{hashlib.sha256(canonical.encode()).hexdigest()}"


def by_user(kind: str, payload: Any) -> str:
    return f"{kind}/{payload['user']}"


class Order(msgspec.Struct):
    id: UUID
    at: datetime


@dataclass
class Recipient:
    to: str
    subject: str


# --- the vectors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unique", "now", "digest"),
    [
        (Unique(), NOON, "3c6da81af475f0b1ddeac43095199334b3ebfaafff9a7e6794b4d4e38122c597"),
        (Unique("to"), NOON, "b5c4c35eeacf8bbf2034b0ed8b0e2f9ac3e7da66b79b543e9c6c124d90c371a3"),
        *[
            (Unique(bucket=timedelta(hours=1)), datetime(2026, 4, 25, *minute, tzinfo=UTC), digest)
            for minute, digest in (
                ((3, 30), "d59dfcd80066c8a8b55e0d8faa929a6074bdd1aa8b904349b0987a8048bf8d8a"),
                ((3, 59), "d59dfcd80066c8a8b55e0d8faa929a6074bdd1aa8b904349b0987a8048bf8d8a"),
                ((4, 0), "689a17f552bca147b28f39f8d909f02709738e23810cfaf633b221807498f59a"),
            )
        ],
    ],
)
def test_keys_are_those_of_other_implementations(
    unique: Unique, now: datetime, digest: str
) -> None:
    assert unique.key("example_job", EMAIL, now=now) == f"example_job:{digest}"


PICKS: list[tuple[Unique, Any, str]] = [
    (Unique(), {"b": 1, "a": 2}, '{"a":2,"b":1,}'),
    (Unique(), [1, 2.0], "[1,2,]"),
    (Unique(), None, "null"),
    (Unique(), {"a": 2**70}, '{"a":1180591620717411303424,}'),
    # Picked fields keep their nesting.
    (Unique("a", "b"), {"b": 2, "c": 3, "a": 1}, '{"a":1,"b":2,}'),
    (Unique("user.id"), {"user": {"id": 42, "name": "x"}, "z": 1}, '{"user":{"id":42,},}'),
    (
        Unique("user.id", "to", "user.team.id"),
        {"to": "x", "user": {"id": 1, "team": {"id": 2}, "name": "n"}},
        '{"to":"x","user":{"id":1,"team":{"id":2,},},}',
    ),
    (Unique("user", "user.id"), {"user": {"id": 1, "n": 2}}, '{"user":{"id":1,"n":2,},}'),
    (Unique("user.id", "user"), {"user": {"id": 1, "n": 2}}, '{"user":{"id":1,"n":2,},}'),
    (Unique("missing", missing="ignore"), {"a": 1}, "{}"),
    (
        Unique("a", "missing", "a.b", "n.x", "t.0", missing="ignore"),
        {"a": 1, "n": None, "t": [1]},
        '{"a":1,}',
    ),
    (Unique("a"), {"a": None}, '{"a":null,}'),
    (Unique("a", missing="ignore"), {}, "{}"),
    (
        Unique("user-id", "größe", "@type", "0", missing="ignore"),
        {"user-id": 1, "0": 2},
        '{"0":2,"user-id":1,}',
    ),
    # Elements, and names with dots, as other implementations write them.
    (Unique(".a", ".user.id"), {"a": 1, "user": {"id": 2}}, '{"a":1,"user":{"id":2,},}'),
    (Unique("."), {"b": 1}, '{"b":1,}'),
    (Unique("b", "."), {"b": 1, "a": 2}, '{"a":2,"b":1,}'),
    (Unique("items[0]"), {"items": [1, 999]}, '{"items":[1,],}'),
    (Unique("items[1]"), {"items": [1, 2, 3]}, '{"items":[null,2,],}'),
    (
        Unique("items[1].a", "items[0].b"),
        {"items": [{"b": 1}, {"a": 2}]},
        '{"items":[{"b":1,},{"a":2,},],}',
    ),
    (Unique("items[5]", "items.x", missing="ignore"), {"items": [1]}, "{}"),
    (Unique("user[0]", missing="ignore"), {"user": {"0": 1}}, "{}"),
    (Unique(".[0]"), [1, 999], "[1,]"),
    (Unique("[0][1]"), [[1, 2], 3], "[[null,2,],]"),
    (Unique("[7]", missing="ignore"), [1], "{}"),
    (Unique('["this.example"]'), {"this.example": 42, "other": 1}, '{"this.example":42,}'),
    (Unique('.a["b.c"].d'), {"a": {"b.c": {"d": 1}}}, '{"a":{"b.c":{"d":1,},},}'),
    (Unique(r'["say \"hi\" \\"]'), {'say "hi" \\': 1}, r'{"say \"hi\" \\":1,}'),
    (Unique('[""]'), {"": 1, "a": 2}, '{"":1,}'),
    # Excluded ones.
    (Unique(exclude="c"), {"a": 1, "b": 2, "c": 3}, '{"a":1,"b":2,}'),
    (Unique(exclude=["a", ".b"]), {"a": 1, "b": 2, "c": 3}, '{"c":3,}'),
    (Unique(exclude="user.name"), {"user": {"name": "x", "id": 1}}, '{"user":{"id":1,},}'),
    (Unique(exclude=("missing", "a.b.c", "a[0]")), {"a": 1}, '{"a":1,}'),
    (Unique(exclude="items[0]"), {"items": [9, "keep"]}, '{"items":["keep",],}'),
    (Unique(exclude=["[0]", "[1]"]), [1, 2, 3], "[2,]"),
    (Unique(exclude="a"), [1], "[1,]"),
    (Unique(exclude="."), {"a": 1}, "null"),
    (Unique(exclude=[]), {"a": 1}, '{"a":1,}'),
]


@pytest.mark.parametrize(("unique", "payload", "hashed"), PICKS)
def test_the_key_hashes_what_was_picked(unique: Unique, payload: Any, hashed: str) -> None:
    before = copy.deepcopy(payload)

    assert unique.key("k", payload) == key_of(hashed)
    assert payload == before


# --- the payload as it is stored ------------------------------------------------------------------


def test_a_value_and_its_stored_form_have_one_key() -> None:
    order = Order(UUID(int=5), NOON)
    stored = {
        "id": "00000000-0000-0000-0000-000000000005",
        "at": "2026-03-01T12:34:56.789999Z",
    }

    for unique in (Unique(), Unique("id"), Unique(exclude="at")):
        assert unique.key("k", order) == unique.key("k", stored)
    assert Unique("to").key("k", Recipient("x", "y")) == Unique("to").key("k", {"to": "x"})


def test_a_set_has_one_key_in_every_process() -> None:
    program = (
        "from onefold.model.unique import Unique;"
        "print(Unique().key('k', {'tags': {'a', 'b', 'c', 'd', 'e'}}))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for seed in ("1", "2", "3")
    }

    assert found == {key_of('{"tags":["a","b","c","d","e",],}')}


HOURLY = Unique(bucket=timedelta(hours=1))
NO_OBJECTS: list[Any] = [None, 1, "text", [1], [{"a": 1}]]


@pytest.mark.parametrize(
    ("unique", "payload", "sentence"),
    [
        *[(Unique("a"), {"a": 1, "b": bad}, "payload ") for bad in (math.nan, object(), "\ud800")],
        *[
            (Unique("a"), payload, "unique needs a payload that is a JSON object when fields are")
            for payload in NO_OBJECTS
        ],
        *[
            (Unique("[0]"), payload, "unique needs a payload that is a JSON array when elements")
            for payload in (None, {"0": 1})
        ],
        *[(HOURLY, payload, "bucket needs a payload that is a JSON") for payload in NO_OBJECTS],
        (HOURLY, {"bucket": 1}, 'bucket collides with the member "bucket"'),
        (Unique("bucket", bucket=timedelta(1)), {"bucket": 1}, "bucket collides with the member"),
    ],
)
def test_a_payload_that_does_not_fit_the_rule_has_no_key(
    unique: Unique, payload: Any, sentence: str
) -> None:
    with pytest.raises(InvalidInput, match=f"^{sentence}"):
        unique.key("k", payload, now=NOON)


def test_an_empty_kind_and_a_naive_time_are_refused() -> None:
    with pytest.raises(InvalidInput, match="kind must not be empty"):
        Unique().key("", {})
    with pytest.raises(InvalidInput, match="now needs a time zone"):
        HOURLY.key("k", {}, now=NOON.replace(tzinfo=None))


json_objects = st.dictionaries(
    st.text("abc", min_size=1, max_size=2),
    st.none() | st.integers() | st.dictionaries(st.text("abc", min_size=1, max_size=2), st.text()),
)


@settings(deadline=None)
@given(json_objects, st.sets(st.text("abc", min_size=1, max_size=2)))
def test_picking_some_fields_is_the_same_as_excluding_the_others(
    payload: dict[str, Any], names: set[str]
) -> None:
    picked = {name: payload[name] for name in payload if name in names}
    others = [name for name in payload if name not in names]

    assert Unique(exclude=others).key("k", payload) == Unique().key("k", picked)
    if names:
        lenient = Unique(*names, missing="ignore")
        assert lenient.key("k", payload) == Unique().key("k", picked)


@pytest.mark.parametrize(
    ("unique", "payload", "sentence"),
    [
        (Unique("usrId"), {"userId": 1, "at": 2}, "'usrId', .* It has 'at', 'userId'"),
        (Unique("a"), {}, "'a', .* It has no members"),
        (Unique("a", "b"), {"a": 1}, "'b', .* It has 'a'"),
        (Unique("user.idd"), {"user": {"id": 1}}, r"'user\.idd', .* Its 'user' has 'id'"),
        (Unique("user.id"), {"user": None}, "Its 'user' is no object or list"),
        (Unique("items[5]"), {"items": [1]}, "Its 'items' has 1 elements"),
        (Unique("[7].a"), [1], r"'\[7\]\.a', .* It has 1 elements"),
        (Unique("m"), {f"m{n:02}": n for n in range(11)}, "'m08', 'm09', …"),
    ],
)
def test_a_field_that_is_not_there_is_an_error(unique: Unique, payload: Any, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=f"unique names .*{sentence}") as refused:
        unique.key("email", payload)
    assert "the payload of 'email' does not have" in str(refused.value)
    assert 'missing="ignore"' in str(refused.value)


def test_missing_is_a_word_for_fields_that_are_picked() -> None:
    wrong: Any = "skip"
    with pytest.raises(InvalidInput, match='missing must be "error" or "ignore"'):
        Unique("a", missing=wrong)
    with pytest.raises(ConflictingOptions, match="needs fields to pick"):
        Unique(missing="ignore")
    lenient = Unique("a", missing="ignore")
    assert repr(lenient) == "Unique('a', missing='ignore')"
    assert lenient != Unique("a")
    assert lenient.key("k", {"a": 1}) == Unique("a").key("k", {"a": 1}), "the digest is the same"


# --- buckets --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "now", "bucket"),
    [
        (timedelta(hours=1), datetime(2026, 3, 1, 12, 0, tzinfo=UTC), NOON_HOUR),
        (timedelta(hours=1), datetime(2026, 3, 1, 12, 59, 59, 999_999, tzinfo=UTC), NOON_HOUR),
        (timedelta(hours=1), datetime(2026, 3, 1, 13, 0, tzinfo=UTC), NOON_HOUR + 3_600_000),
        (timedelta(milliseconds=1), NOON, NOON_HOUR + 34 * 60_000 + 56_789),
        (timedelta(seconds=7), datetime(1970, 1, 1, 0, 0, 20, tzinfo=UTC), 14_000),
        (timedelta(days=1), datetime(1969, 12, 31, 23, tzinfo=UTC), -86_400_000),
        (timedelta(hours=1), NOON.astimezone(timezone(timedelta(hours=5, minutes=30))), NOON_HOUR),
    ],
)
def test_a_bucket_is_counted_from_the_epoch(width: timedelta, now: datetime, bucket: int) -> None:
    assert Unique(bucket=width).key("k", {}, now=now) == key_of(f'{{"bucket":{bucket},}}')


def test_a_bucket_takes_the_time_of_this_machine_by_default() -> None:
    unique = Unique(bucket=timedelta(days=1))

    before, key, after = (
        unique.key("k", {}, now=datetime.now(UTC)),
        unique.key("k", {}),
        unique.key("k", {}, now=datetime.now(UTC)),
    )

    assert key in (before, after)


def test_a_member_called_bucket_that_is_not_hashed_does_not_collide() -> None:
    for unique in (
        Unique(exclude="bucket", bucket=timedelta(hours=1)),
        Unique("a", bucket=timedelta(hours=1)),
    ):
        key = unique.key("k", {"bucket": 7, "a": 2}, now=NOON)
        assert key == key_of(f'{{"a":2,"bucket":{NOON_HOUR},}}')


def test_a_bucket_has_a_width_of_whole_milliseconds() -> None:
    microseconds = [timedelta(microseconds=n) for n in (0, -3_600_000_000, 999, 1500)]
    widths: list[Any] = [*microseconds, 60]
    for width in widths:
        with pytest.raises(InvalidInput, match=r"^bucket "):
            Unique(bucket=width)


# --- rules of one's own ---------------------------------------------------------------------------


@pytest.mark.parametrize("made", ["", None, 7, "x" * 513])
def test_a_function_must_make_what_can_be_a_key(made: Any) -> None:
    def rule(kind: str, payload: Any) -> Any:
        return made

    with pytest.raises(InvalidInput, match=r"^unique must "):
        Unique(key=rule).key("k", {})


# --- the value ------------------------------------------------------------------------------------


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConflictingOptions, match="exclude cannot be given together with fields"):
        Unique("a", exclude="b")
    others: list[dict[str, Any]] = [{"exclude": "a"}, {"bucket": timedelta(1)}]
    for other in others:
        with pytest.raises(ConflictingOptions, match="key makes the whole key"):
            Unique(key=by_user, **other)
    with pytest.raises(ConflictingOptions, match="key makes the whole key"):
        Unique("a", key=by_user)


@pytest.mark.parametrize(
    "path",
    ["", "a.", "..a", "a..b", "[", "a[", "a[x]", "a[-1]", "a[0", "a[0]b", '["a', '["a"', 'a"b',
     "a]", 7],
)  # fmt: skip
def test_a_path_that_cannot_be_read_is_refused(path: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^unique (has a path|needs paths)"):
        Unique("fine", path)
    with pytest.raises(InvalidInput, match=r"^exclude (has a path|needs paths)"):
        Unique(exclude=["fine", path])


# --- fingerprints ---------------------------------------------------------------------------------


def test_a_fingerprint_never_changes_and_the_order_of_members_does_not_change_it() -> None:
    assert fingerprint("kind", "payload") == "e8ac642d29cc51833dd6a138ab14121d"
    assert request_fingerprint("k", payload={"a": 1, "b": {"c": 2, "d": 3}}) == (
        request_fingerprint("k", payload={"b": {"d": 3, "c": 2}, "a": 1})
    )


def test_a_rule_is_shown_as_it_would_be_written() -> None:
    assert repr(Unique()) == "Unique()"
    assert repr(Unique("a", "b.c")) == "Unique('a', 'b.c')"
    assert repr(Unique(exclude="a", bucket=timedelta(1))) == (
        "Unique(exclude=('a',), bucket=datetime.timedelta(days=1))"
    )
    assert repr(Unique(key=by_user)).startswith("Unique(key=<function by_user")
