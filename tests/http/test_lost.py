"""Handlers that find out that their key is lost, and stop: in every framework."""

from datetime import timedelta

import pytest

from onefold import LeaseLost
from tests.http.apps import asgi_app, fastapi_app, starlette_app
from tests.http.scenario_modes import LEASED_SQLITE
from tests.http.scenario_site import OpenSite
from tests.http.sync_apps import django_app, flask_app, wsgi_app
from tests.kill.workers import until

SHORT = timedelta(seconds=0.3)

pytestmark = [
    pytest.mark.parametrize("mode", [LEASED_SQLITE], ids=str),
    pytest.mark.parametrize(
        "adapter",
        [asgi_app, starlette_app, fastapi_app, wsgi_app, flask_app, django_app],
    ),
]


async def test_h146_a_handler_that_stops_leaves_its_key_to_others_and_its_client_is_told(
    open_site: OpenSite,
) -> None:
    site = await open_site(takeover="rerun", lease=SHORT)
    site.raises(LeaseLost("the key", fence=1))

    async with site.held() as first:
        assert await site.shop.onefold.keys.aforce_release("alice", "k", surface="http")
        until(lambda: site.shop.attempts[-1].lost, "for the heart to find out")

    reply = await first
    assert (reply.status, reply.code, reply.headers["retry-after"]) == (409, "lease_lost", "1")
    site.succeeds()
    again = await site.post()
    assert (again.status, again.is_replay) == (201, False)


async def test_h135_where_it_is_not_lost_the_same_error_is_one_like_others(
    open_site: OpenSite,
) -> None:
    site = await open_site(takeover="rerun")
    site.raises(LeaseLost("somebody's lock", fence=1))

    assert (await site.post()).status == 500
    site.succeeds()
    assert (await site.post()).code == "attempt_failed"
