"""Bodies and headers that are too big for somebody."""

import hashlib
from typing import Any

import pytest

from onefold.web.idempotency.stored_response import Kept
from tests.http.apps import AsgiClient, asgi_app, fastapi_app
from tests.http.apps_talk import Talk, part
from tests.http.scenario_modes import LEASED_SQLITE, OURS_SQLITE
from tests.http.scenario_site import OpenSite, Site

BOTH = pytest.mark.parametrize("mode", [OURS_SQLITE, LEASED_SQLITE], ids=str)
FRAMEWORKS = pytest.mark.parametrize("make", [asgi_app, fastapi_app])


@FRAMEWORKS
async def test_h100_a_body_over_the_limit_is_refused_unread_where_its_length_is_said(
    open_site: OpenSite, make: Any
) -> None:
    site = await open_site(max_request=10)
    talk = Talk(make(site.shop), headers=[("content-length", "11")])

    await talk.run()

    assert (talk.status, talk.is_heard.is_set()) == (413, False)
    assert (site.shop.runs, site.claims) == (0, [])


@FRAMEWORKS
async def test_h100_a_body_over_the_limit_is_refused_once_that_much_has_come(
    open_site: OpenSite, make: Any
) -> None:
    site = await open_site(max_request=10)
    talk = Talk(make(site.shop), *(part(b"12345", more=True) for _ in range(3)), part())

    await talk.run()

    assert talk.status == 413
    assert (site.shop.runs, site.claims) == (0, [])


async def test_h100_a_body_of_just_the_limit_is_not(open_site: OpenSite) -> None:
    site = await open_site(max_request=10)

    assert (await site.post(body=b"0123456789")).status == 201


async def test_h100_a_big_body_is_told_from_another_by_every_byte(open_site: OpenSite) -> None:
    site = await open_site(max_request=20_000_000)
    big = bytes(8_000_000)
    await site.post(body=big)

    assert (await site.post(body=big)).is_replay
    assert (await site.post(body=big[:-1] + b"1")).code == "key_reused"


@BOTH
@pytest.mark.parametrize("make", [asgi_app, fastapi_app])
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


async def test_h102_or_the_retry_is_told_where_to_look(open_site: OpenSite) -> None:
    site = await open_site(kept=Kept(max_body=100), tombstone="location")
    site.answers(201, b"x" * 101, [("Location", "/pay/1")])
    await site.post()

    retry = await site.post()

    assert (retry.status, retry.body, retry.headers["location"]) == (201, b"", "/pay/1")


@BOTH
async def test_h103_an_answer_of_just_the_limit_comes_back_whole(open_site: OpenSite) -> None:
    site = await open_site(kept=Kept(max_body=100))
    site.answers(201, b"x" * 100)
    await site.post()

    assert (await site.post()).body == b"x" * 100


@BOTH
async def test_h103_by_default_a_mebibyte_of_any_bytes_comes_back(open_site: OpenSite) -> None:
    site = await open_site()
    body = bytes(range(256)) * 4096  # H074
    site.answers(200, body, [("Content-Type", "application/octet-stream")])
    await site.post()

    assert (await site.post()).body == body


async def test_h104_of_a_huge_block_of_headers_what_matters_is_kept(open_site: OpenSite) -> None:
    site = await open_site(kept=Kept(max_headers=1000))
    more = [(f"X-{number}", "x" * 100) for number in range(20)]
    site.answers(201, b"x", [*more, ("Location", "/pay/1")])
    first = await site.post()

    retry = await site.post()

    assert "x-19" in first.headers
    assert "x-19" not in retry.headers
    assert retry.headers["location"] == "/pay/1"
