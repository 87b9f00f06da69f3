"""What is refused before it is read, and bodies that are too big for somebody."""

import hashlib
import logging
from typing import Any

import pytest

from onefold import Onefold
from onefold.web.idempotency.stored_response import Kept
from tests.http.apps import AsgiClient, anybody, asgi_app, bare_fastapi, fastapi_app
from tests.http.apps_talk import Talk, part, visited
from tests.http.scenario_modes import LEASED_SQLITE, OURS_SQLITE
from tests.http.scenario_site import OpenSite, Site


@pytest.mark.parametrize("make", [asgi_app, fastapi_app])
async def test_h001_h003_h100_a_bad_key_or_a_long_body_is_refused_unread(
    open_site: OpenSite, make: Any
) -> None:
    site = await open_site(required=False, max_request=10)
    app = make(site.shop)
    bad = Talk(app, part(b"{}"), key=None, headers=[("idempotency-key", "")])
    said = Talk(app, headers=[("content-length", "11")])
    unsaid = Talk(app, *(part(b"12345", more=True) for _ in range(3)), part())

    for talk in (bad, said, unsaid):
        await talk.run()

    assert (bad.status, bad.is_heard.is_set()) == (400, False)
    assert (said.status, said.is_heard.is_set()) == (413, False)
    assert unsaid.status == 413
    assert (site.shop.runs, site.claims) == (0, [])
    assert (await site.post(body=b"0123456789")).status == 201


async def test_keys_of_routes_without_a_policy_may_be_ignored_and_that_is_said(
    onefold: Onefold, caplog: pytest.LogCaptureFixture
) -> None:
    app, _ = bare_fastapi(onefold, unconfigured="ignore")
    app.add_api_route("/plain", anybody, methods=["POST"])

    with caplog.at_level(logging.WARNING):
        (talk,) = await visited(app, b"", path="/plain")

    assert talk.status == 200
    assert "are ignored" in caplog.text


@pytest.mark.parametrize(("mode", "make"), [(OURS_SQLITE, fastapi_app), (LEASED_SQLITE, asgi_app)])
async def test_h101_h102_of_an_answer_that_is_too_big_a_tombstone_is_stored(
    open_site: OpenSite, make: Any
) -> None:
    site = await open_site(kept=Kept(max_body=100))
    site = Site(site.shop, AsgiClient(make(site.shop)))
    body = b"x" * 101
    site.answers(201, body)

    first, retry = await site.post(), await site.post()

    assert (first.status, first.body) == (201, body)
    assert (retry.status, retry.code, retry.is_replay) == (409, "response_not_kept", True)
    assert retry.problem["original_status"] == 201
    assert retry.problem["original_length"] == 101
    assert retry.problem["original_sha256"] == hashlib.sha256(body).hexdigest()
    assert site.shop.runs == 1


async def test_h103_by_default_a_mebibyte_of_any_bytes_comes_back(open_site: OpenSite) -> None:
    site = await open_site()
    body = bytes(range(256)) * 4096  # H074
    site.answers(200, body, [("Content-Type", "application/octet-stream")])
    await site.post()

    assert (await site.post()).body == body
