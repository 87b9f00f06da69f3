"""Bodies that cannot be accepted: a problem that names the place, and nothing stored."""

from typing import Any

import pytest

from onefold.model.json_text import MAX_DEPTH
from tests.fixtures.colours import Store
from tests.fixtures.served import Api

JOBS = "/v1/queues/payments/jobs"
BATCH = f"{JOBS}/batch"
MANY_NAMES = ",".join(f'"{number:x}":1' for number in range(200_000)).encode()

both_databases = pytest.mark.parametrize("dialect", ["sqlite", "postgres"])


@pytest.fixture(autouse=True)
def nothing_is_stored(store: Store) -> Any:
    """Whatever was refused has left nothing behind: no job, and no key."""
    yield
    with store.open() as onefold:
        assert list(onefold.find()) == []
        assert list(onefold.keys.find(surface="publish").keys) == []


async def refused(api: Api, raw: bytes, code: str = "malformed_body", path: str = JOBS) -> Any:
    await api.queue()
    reply = await api("POST", path, raw=raw, Idempotency_Key="k")
    return reply.problem(400, code)


@pytest.mark.parametrize(
    ("raw", "place"),
    [
        (b'{"payload": {}', "line 1, column 15"),
        (b'{"payload":\n  {"a": tru}}', "line 2, column 9"),
        (b'{"payload": {} x}', "line 1, column 16"),
        (b"payload=1", "line 1, column 1"),
        (b'{"payload": "a\nb"}', "line 1, column 15"),
        (b'{"payload": "a\\x"}', "line 1, column"),
        (b" ", "line 1, column 2"),
        (b"", "missing"),
    ],
)
async def test_what_is_not_json_is_told_where(api: Api, raw: bytes, place: str) -> None:
    told = await refused(api, raw)

    assert told["field"] == "$"
    assert place in told["detail"]
    assert told["error"]["formErrors"] == [told["detail"]]


async def test_a_member_that_is_called_like_the_whole_body_is_not_taken_for_it(api: Api) -> None:
    told = await refused(api, b'{"payload": 1, "$": 1}', "invalid_input")

    assert told["field"] == "$.$"
    assert (await api("GET", "/v1/jobs?$=1")).problem(400, "invalid_input")["field"] == "$.$"


NO_NUMBERS = ["NaN", "Infinity", "-Infinity", "1e400", "-1e999", ".5", "+1", "9" * 5_000]
LONE_SURROGATES = ["\\ud800", "\\udfff\\ud800", "\\ud83dx"]


@both_databases
async def test_numbers_and_text_that_nobody_can_store_are_refused(api: Api) -> None:
    await api.queue()
    bodies = [f'{{"payload": {{"n": {number}}}}}' for number in NO_NUMBERS]
    for text in LONE_SURROGATES:
        bodies += [
            f'{{"payload": "{text}"}}',
            f'{{"payload": {{"{text}": 1}}}}',
            f'{{"payload": 1, "uniqueKey": "{text}"}}',
        ]

    for raw in bodies:
        reply = await api("POST", JOBS, raw=raw.encode())
        assert reply.status == 400, raw
        assert reply.json["code"] in {"malformed_body", "invalid_input"}


@pytest.mark.parametrize(
    ("raw", "place"),
    [
        (b'{"payload": "\xff"}', "byte 13"),
        (b'{"payload": "\xc3\x28"}', "byte 13"),
        (b'{"payload": "\xed\xa0\x80"}', "byte 13"),
        (b'{"\xff": 1}', "byte 2"),
        ('{"payload": 1}'.encode("utf-16"), "byte 0"),
    ],
)
async def test_what_is_not_utf_8_is_told_where(api: Api, raw: bytes, place: str) -> None:
    told = await refused(api, raw)

    assert "not UTF-8" in told["detail"]
    assert place in told["detail"]


@both_databases
async def test_a_nul_in_a_payload_is_kept_and_elsewhere_refused(api: Api) -> None:
    await api.queue()
    kept = await api.publish({"a\0b": "c\0d"})
    assert (await api.job(kept["id"]))["payload"] == {"a\0b": "c\0d"}
    await api.onefold.adelete(kept["id"])

    for member in ("idempotencyKey", "uniqueKey", "kind", "groupKey"):
        reply = await api("POST", JOBS, {"payload": 1, member: "a\0b"})
        assert reply.problem(400, "invalid_input")["field"] == member
    (await api("POST", JOBS, {"payload": 1, "tags": ["a\0b"]})).problem(400, "invalid_input")
    (await api("POST", JOBS, raw=b'{"payload": 1}\x00')).problem(400, "malformed_body")


@pytest.mark.parametrize("depth", [MAX_DEPTH, 1_000, 10_000, 200_000])
async def test_what_nests_too_deeply_is_refused(api: Api, depth: int) -> None:
    await api.queue()
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        middle = "1" if opening != "[" else ""
        payload = opening * depth + middle + closing * depth
        # A level more than may be, with the one that is around it.
        raw = f'{{"payload": [{payload}]}}'
        reply = await api("POST", JOBS, raw=raw.encode())
        assert reply.status == 400, reply.body
        assert "nest" in reply.json["detail"]


@pytest.mark.parametrize(
    ("raw", "member"),
    [
        (b'{"payload": 1, "payload": 2}', "payload"),
        (b'{"payload": {"a": {"b": 1, "b": 1}}}', "b"),
        (b'{"payload": {"a": "x", ":b": 1, ":b": 1}}', ":b"),
        (b'{"payload": 1, "uniqueKey": "x", "unique\\u004bey": "y"}', "uniqueKey"),
        (b'{"payload": 1, "idempotencyKey": "a", "idempotencyKey": "b"}', "idempotencyKey"),
        # To compare each name with all others would take longer than a test may.
        (b'{"payload": {%s,"zz":1,"zz":2}}' % MANY_NAMES, "zz"),
    ],
    ids=["payload", "within", "colon", "escaped", "key", "among many"],
)
async def test_a_member_that_is_there_twice_is_named(api: Api, raw: bytes, member: str) -> None:
    told = await refused(api, raw, "invalid_input")

    assert told["field"].endswith(member)
    assert "twice" in told["detail"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ([], "$"),
        ("text", "$"),
        (None, "$"),
        (7, "$"),
        ({}, "payload"),
        ({"payload": 1, "paylaod": 1}, "paylaod"),
        ({"payload": 1, "Payload": 1}, "Payload"),
        ({"payload": 1, "unique_key": "u"}, "unique_key"),
        ({"payload": 1, "delay": True}, "delay"),
        ({"payload": 1, "delay": -0.001}, "delay"),
        ({"payload": 1, "delay": 1e300}, "delay"),
        ({"payload": 1, "runAt": "tomorrow"}, "runAt"),
        ({"payload": 1, "runAt": "2020-01-01T00:00:00"}, "runAt"),
        ({"payload": 1, "runAt": 5}, "runAt"),
        ({"payload": 1, "runAt": "0001-01-01T00:00:00+14:00"}, "runAt"),
        ({"payload": 1, "priority": 10**30}, "priority"),
        ({"payload": 1, "maxAttempts": 101}, "maxAttempts"),
        ({"payload": 1, "uniqueWhile": "forever"}, "uniqueWhile"),
        ({"payload": 1, "onDuplicate": "explode"}, "onDuplicate"),
        ({"payload": 1, "onMismatch": "raise", "onDuplicate": "replace"}, "onMismatch"),
        ({"payload": 1, "maxWait": 5}, "maxWait"),
        ({"payload": 1, "kind": ""}, "kind"),
        ({"payload": 1, "idempotencyKey": ""}, "idempotencyKey"),
        ({"payload": 1, "idempotencyKey": 5}, "idempotencyKey"),
        ({"payload": 1, "uniqueKey": "é" * 257}, "uniqueKey"),
        ({"payload": 1, "tags": [1]}, "tags[0]"),
        ({"payload": 1, "metadata": []}, "metadata"),
        ({"payload": 1, "metadata": {"\0": 1}}, "metadata"),
        ({"payload": 1, "timeout": 0}, "timeout"),
        ({"payload": 1, "backoff": {"type": "random"}}, "backoff.type"),
        ({"payload": 1, "backoff": {"base": 10, "cap": 5}}, "backoff.cap"),
        ({"payload": 1, "retention": {"dead": -1}}, "retention.dead"),
        ({"payload": 1, "uniqueKey": "u", "uniqueWhile": "exists", "retention": {"dead": 0}},
         "retention"),
    ],
)  # fmt: skip
async def test_what_cannot_be_is_named(api: Api, body: Any, field: str) -> None:
    await api.queue()

    reply = await api("POST", JOBS, body)

    told = reply.problem(400, "malformed_body" if field == "$" else "invalid_input")
    assert told["field"] == field
    if field != "$":
        assert list(told["error"]["fieldErrors"]) == [field]


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (b'{"items": null}', "items"),
        (b"{}", "items"),
        (b'{"items": [], "atOnce": true}', "atOnce"),
        (b'{"items": [{"payload": 2, "payload": 3}]}', "payload"),
        (b'{"items": [' + b",".join([b'{"payload":1}'] * 10_001) + b"]}", "items"),
    ],
    ids=["null", "none", "unknown", "twice", "too many"],
)
async def test_a_batch_that_cannot_be_is_refused(api: Api, raw: bytes, field: str) -> None:
    told = await refused(api, raw, "invalid_input", BATCH)

    assert told["field"].endswith(field)


@pytest.mark.parametrize("path", [JOBS, BATCH])
async def test_a_body_that_is_too_large_is_413(store: Store, path: str) -> None:
    api = Api(store.open(), max_body=1_000)
    await api.queue()
    many = b'{"payload": "' + b"x" * 2_000 + b'"}'

    announced = await api("POST", path, raw=many, content_length=str(len(many)))
    boasted = await api("POST", path, raw=b"{}", content_length="9" * 5_000)
    waiting = await api("POST", path, raw=many, content_length="2000", expect="100-continue")
    in_pieces = await api("POST", path, raw=[many[:900], many[900:1_800], many[1_800:]])
    at_once = await api("POST", path, raw=many)

    for reply in (announced, boasted, waiting, in_pieces, at_once):
        assert reply.problem(413, "too_large")["limit"] == 1_000
        assert isinstance(reply.json["error"], str)


async def test_a_body_that_breaks_off_is_told_to_whoever_still_listens(api: Api) -> None:
    await api.queue()
    headers = [("content-type", "application/json")]

    reply = await api.send("POST", JOBS, [b'{"payload": 1}'], headers, whole=False)

    reply.problem(400, "incomplete")


async def test_json_by_any_of_its_names_is_taken_and_another_content_type_is_415(api: Api) -> None:
    await api.queue()
    form = ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]

    for media_type in ("", *form, "application/jsonp", "json"):
        headers = [("content-type", media_type)] if media_type else []
        reply = await api.send("POST", JOBS, [b'{"payload": 1}'], headers)
        reply.problem(415, "unsupported_media_type")

    names = ["application/json", "Application/JSON; charset=utf-8", "application/vnd.x+json"]
    for media_type in names:
        reply = await api("POST", JOBS, raw=b'{"payload": 1}', content_type=media_type)
        assert reply.status == 201, media_type
        await api.onefold.adelete(reply.json["id"])
