"""What is refused before it is read, and bodies that are too big for somebody."""

import logging
from typing import Any

import pytest

from onefold import Onefold
from tests.http.apps import anybody, asgi_app, bare_fastapi, fastapi_app
from tests.http.apps_talk import Talk, part, visited
from tests.http.scenario_site import OpenSite


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
