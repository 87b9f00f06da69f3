"""Whether a key is there, and who may ignore one."""

import logging
from typing import Any

import pytest

from onefold import Onefold
from onefold.web.idempotency.key import KeyRules
from tests.http.apps import AsgiClient, anybody, asgi_app, bare_fastapi, fastapi_app
from tests.http.apps_talk import Talk, part
from tests.http.scenario_site import OpenSite, Shop, Site


@pytest.mark.parametrize("app", [fastapi_app, asgi_app])
async def test_h001_h003_a_bad_key_is_refused_before_anything_is_read(
    open_site: OpenSite, app: Any
) -> None:
    site = await open_site(required=False)
    talk = Talk(app(site.shop), part(b"{}"), key=None, headers=[("idempotency-key", "")])

    await talk.run()

    assert talk.status == 400
    assert not talk.is_heard.is_set()


async def test_h025_the_key_may_be_in_other_headers_which_must_agree(open_site: OpenSite) -> None:
    site = await open_site(key=KeyRules(headers=("Idempotency-Key", "X-Request-Token")))

    await site.post(key="k")
    other = await site.post(key=None, headers={"X-Request-Token": "k"})
    both = await site.post(key="k", headers={"X-Request-Token": "another"})

    assert other.is_replay
    assert (both.status, both.code) == (400, "key_invalid")


async def test_h027_a_route_may_demand_longer_keys(open_site: OpenSite) -> None:
    site = await open_site(key=KeyRules(min_length=16))

    assert (await site.post(key="1")).status == 400
    assert (await site.post(key="1" * 16)).status == 201


async def test_h026_a_key_means_nothing_but_itself(open_site: OpenSite) -> None:
    site = await open_site()
    keys = ["a:b", "a/b", "a%b", "a*", "a?", "{a}", "a';--", "a", "A"]

    replies = [await site.post(key=key) for key in keys]

    assert [reply.status for reply in replies] == [201] * len(keys)
    assert len(site.payments) == len(keys)


async def test_keys_of_routes_without_a_policy_may_be_ignored_and_that_is_said(
    onefold: Onefold, caplog: pytest.LogCaptureFixture
) -> None:
    app, _ = bare_fastapi(onefold, unconfigured="ignore")
    app.add_api_route("/plain", anybody, methods=["POST"])
    site = Site(Shop.__new__(Shop), AsgiClient(app))

    with caplog.at_level(logging.WARNING):
        reply = await site.post("/plain")

    assert reply.status == 200
    assert "are ignored" in caplog.text
