"""What is stored of a request, also sealed, what is told of it, and how it is forgotten."""

import base64
import logging
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from onefold import InvalidInput
from onefold.web.http import HttpResponse
from onefold.web.idempotency.encryption import Sealing, UnreadableAnswer, is_sealed
from tests.fixtures.colours import Store
from tests.fixtures.place import Place
from tests.http.scenario_modes import LEASED_SQLITE, OURS_POSTGRES, OURS_SQLITE
from tests.http.scenario_site import OpenSite

BOTH = pytest.mark.parametrize("mode", [OURS_SQLITE, LEASED_SQLITE, OURS_POSTGRES], ids=str)


def stored(store: Store) -> list[dict[str, Any]]:
    """What is stored with every key, as text."""
    place = Place(store.url, store.schema)
    found = place.rows("select key, scope, fingerprint, result from {claim} order by scope, key")
    names = ("key", "scope", "fingerprint", "result")
    return [dict(zip(names, row, strict=True)) for row in found]


@BOTH
async def test_h062_the_body_of_a_request_is_not_stored(open_site: OpenSite, store: Store) -> None:
    site = await open_site()
    await site.post(body=b'{"card": "4242424242424242"}')

    (row,) = stored(store)

    assert "4242" not in str(row)
    assert row["fingerprint"].startswith("1.raw:")


async def test_h202_no_problem_holds_the_key_the_body_or_the_stored_answer(
    open_site: OpenSite, caplog: pytest.LogCaptureFixture
) -> None:
    site = await open_site()
    site.answers(201, b"the stored answer")
    key, body = "a-key-that-is-secret", b"a body that is secret"
    await site.post(key=key, body=body)

    with caplog.at_level(logging.DEBUG):
        reused = await site.post(key=key, body=b"other")
        invalid = await site.post(key=f"{key}, {key}", body=body)

    for reply in (reused, invalid):
        assert key.encode() not in reply.body
        assert b"secret" not in reply.body
        assert b"the stored answer" not in reply.body
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("onefold")]
    assert not any(key in message for message in ours)


@BOTH
async def test_an_answer_can_be_stored_without_what_must_not_be_kept(
    open_site: OpenSite, store: Store
) -> None:
    def redact(answer: HttpResponse) -> HttpResponse:
        return msgspec.structs.replace(answer, body=answer.body.replace(b"4242", b"****"))

    site = await open_site(redact=redact)
    site.answers(200, b"card 4242")

    first, retry = await site.post(), await site.post()

    assert (first.body, retry.body) == (b"card 4242", b"card ****")
    assert "4242" not in str(stored(store))


@BOTH
async def test_h192_an_answer_can_be_sealed_and_is_opened_after_its_key_was_rotated(
    open_site: OpenSite, store: Store
) -> None:
    site = await open_site(sealing=Sealing({"old": bytes(32)}, current="old"))
    first = await site.post()
    (row,) = stored(store)
    assert "payment" not in str(row["result"])

    rotated = await open_site(sealing=Sealing({"new": b"n" * 32, "old": bytes(32)}, current="new"))
    unsealed = await open_site()

    assert (await rotated.post()).body == first.body
    # H191: what cannot be read was carried out all the same.
    assert (await unsealed.post()).code == "outcome_unknown"


OLD, NEW = bytes(range(32)), bytes(range(32, 64))
TEXT = '{"card": "ü 4242"}'


def test_h192_what_was_sealed_is_opened() -> None:
    sealing = Sealing({"2026": NEW}, current="2026")
    sealed = sealing.seal(TEXT, place="tenant/k")

    assert sealing.open(sealed, place="tenant/k") == TEXT
    assert sealed.startswith("sealed1:2026:")
    assert is_sealed(sealed)
    assert not is_sealed(TEXT)
    assert not is_sealed({"v": 1})
    assert sealing.seal(TEXT, place="tenant/k") != sealed, "each time differently"
    assert b"4242" not in base64.b64decode(sealed.rpartition(":")[2])
    assert repr(NEW) not in repr(sealing)
    with pytest.raises(UnreadableAnswer, match="moved"):
        sealing.open(sealed, place="other")
    with pytest.raises(UnreadableAnswer):
        Sealing({"b": NEW}, current="b").open(sealed.replace(":2026:", ":b:"), place="tenant/k")


def test_h192_without_the_key_it_is_unreadable_and_never_absent() -> None:
    sealed = Sealing({"2025": OLD}, current="2025").seal(TEXT)

    with pytest.raises(UnreadableAnswer, match="does not have"):
        Sealing({"2026": NEW}, current="2026").open(sealed)
    with pytest.raises(UnreadableAnswer, match="another key"):
        Sealing({"2025": NEW}, current="2025").open(sealed)


WHOLE = Sealing({"a": NEW}, current="a").seal(TEXT)


@pytest.mark.parametrize(
    "damaged",
    [
        WHOLE[:-8],
        WHOLE[:20],
        WHOLE[:-4] + "AAAA",
        WHOLE + "!",
        WHOLE + "ü",
        WHOLE.replace("sealed1", "sealed2"),
        *("", "sealed1", "sealed1:a", "sealed1:a:", TEXT),
    ],
    ids=range(11),
)
def test_what_is_damaged_is_unreadable(damaged: str) -> None:
    with pytest.raises(UnreadableAnswer):
        Sealing({"a": NEW}, current="a").open(damaged)


@pytest.mark.parametrize(
    ("keys", "current"),
    [
        ({}, "a"),
        ({"a": NEW}, "b"),
        ({"a": b"short"}, "a"),
        ({"": NEW}, ""),
        ({"a:b": NEW}, "a:b"),
    ],
)
def test_keys_that_cannot_seal_are_refused(keys: dict[str, bytes], current: str) -> None:
    with pytest.raises(InvalidInput):
        Sealing(keys, current=current)


def test_without_cryptography_it_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['cryptography'] = None;"
        "from onefold.web.idempotency.encryption import Sealing;"
        "Sealing({'a': bytes(32)}, current='a')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert "pip install 'onefold[" in done.stderr
