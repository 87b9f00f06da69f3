"""What is stored of a request, what is told of it, and how it is forgotten."""

import logging
from typing import Any

import msgspec
import pytest

from onefold.web.http import HttpResponse
from onefold.web.idempotency.encryption import Sealing
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
