"""What every site does, whichever framework, library and database it is written with.

A test class of an adapter's inherits it, and says which `adapter` and `mode` it has.
"""

import asyncio
from datetime import timedelta

import pytest

from tests.fixtures.colours import Clock
from tests.http.scenario_site import BOB, LONG, Mode, OpenSite

SHORT = timedelta(milliseconds=200)
"""How long SQLite waits for its one lock where a test knows that it is held."""


class Scenario:
    """Inherit it as `class TestFlask(Scenario)`, parametrized with adapters and modes."""

    async def test_h070_h071_a_retry_gets_the_same_bytes_and_the_handler_ran_once(
        self, open_site: OpenSite
    ) -> None:
        site = await open_site()

        first = await site.post()
        retries = [await site.post(), await site.post()]

        assert (first.status, first.body) == (201, b'{"payment": 1}')
        assert "Idempotent-Replayed" not in first.headers
        assert {(retry.status, retry.body, retry.is_replay) for retry in retries} == {
            (201, b'{"payment": 1}', True)
        }
        assert (site.shop.runs, site.payments) == (1, [1])

    async def test_the_handler_is_given_the_body(self, open_site: OpenSite) -> None:
        site = await open_site()

        await site.post(body=b'{"amount": 7}')

        assert site.shop.heard == [b'{"amount": 7}']  # H096

    async def test_h001_a_request_without_the_required_key_is_refused(
        self, open_site: OpenSite
    ) -> None:
        site = await open_site(link="https://shop.example/keys")

        reply = await site.post(key=None)

        assert (reply.status, reply.code) == (400, "key_missing")
        assert reply.headers["link"] == '<https://shop.example/keys>; rel="describedby"'
        assert (site.shop.runs, site.claims) == (0, [])

    async def test_h002_without_an_optional_key_the_handler_just_runs(
        self, open_site: OpenSite
    ) -> None:
        site = await open_site(required=False)

        replies = [await site.post(key=None), await site.post(key=None)]

        assert [reply.body for reply in replies] == [b'{"payment": 1}', b'{"payment": 2}']
        assert all("Idempotent-Replayed" not in reply.headers for reply in replies)
        assert (site.payments, site.claims) == ([1, 2], [])

    @pytest.mark.parametrize("required", [True, False])
    async def test_h003_a_header_that_is_empty_is_no_missing_one(
        self, open_site: OpenSite, *, required: bool
    ) -> None:
        site = await open_site(required=required)

        reply = await site.post(key="")

        assert (reply.status, reply.code, site.shop.runs) == (400, "key_invalid", 0)

    async def test_h024_the_name_of_the_header_has_no_case(self, open_site: OpenSite) -> None:
        site = await open_site()

        await site.post(key=None, headers={"IDEMPOTENCY-KEY": "k"})
        retry = await site.post(key=None, headers={"idempotency-key": '"k"'})

        assert retry.is_replay

    async def test_h050_another_body_under_the_key_is_refused_and_told_nothing(
        self, open_site: OpenSite
    ) -> None:
        site = await open_site()
        await site.post()

        reply = await site.post(body=b'{"amount": 2}')

        assert (reply.status, reply.code) == (422, "key_reused")
        assert b"payment" not in reply.body
        assert site.payments == [1]

    async def test_h034_the_key_on_another_path_is_a_mistake(self, open_site: OpenSite) -> None:
        site = await open_site()
        await site.post("/pay")

        assert (await site.post("/other")).code == "key_reused"
        assert site.payments == [1]

    async def test_h034_keys_may_be_per_route(self, open_site: OpenSite) -> None:
        site = await open_site(scope="route")
        await site.post("/pay")

        assert (await site.post("/other")).status == 201
        assert site.payments == [1, 2]

    async def test_h032_a_delete_with_a_policy_answers_its_retry_as_the_first_time(
        self, open_site: OpenSite
    ) -> None:
        site = await open_site()
        site.answers(204)

        replies = [await site.post("/orders/7", method="DELETE", body=b"") for _ in range(2)]

        assert [reply.status for reply in replies] == [204, 204]
        assert [reply.is_replay for reply in replies] == [False, True]
        assert site.shop.runs == 1

    async def test_h033_patch_is_covered_like_post(self, open_site: OpenSite) -> None:
        site = await open_site()

        await site.post(method="PATCH")

        assert (await site.post(method="PATCH")).is_replay

    async def test_h030_h031_what_has_no_policy_and_is_no_post_passes(
        self, open_site: OpenSite
    ) -> None:
        site = await open_site()

        seen = [
            (await site.post("/pay", method="GET", body=b"")).status,
            (await site.post("/plain", method="PUT")).status,
            (await site.post("/plain", method="DELETE")).status,
        ]

        assert (seen, site.shop.reads, site.claims) == ([200, 200, 200], 3, [])

    async def test_a_post_with_a_key_where_no_policy_is_is_told_so(
        self, open_site: OpenSite
    ) -> None:
        site = await open_site()

        reply = await site.post("/plain")

        assert (reply.status, reply.code, site.shop.reads) == (400, "not_configured", 0)
        assert (await site.post("/plain", key=None)).status == 200

    async def test_h038_h039_keys_belong_to_a_tenant_and_its_caller(
        self, open_site: OpenSite
    ) -> None:
        site = await open_site()
        await site.post()

        others = [
            await site.post(user=BOB),
            await site.post(headers={"X-Tenant": "other"}),
        ]

        assert [(reply.status, reply.is_replay) for reply in others] == [(201, False)] * 2
        assert site.payments == [1, 2, 3]

    async def test_h042_h044_nobody_passes_the_door_by_a_key(self, open_site: OpenSite) -> None:
        site = await open_site()

        stranger = await site.post(user=None)
        assert (stranger.status, site.claims) == (401, [])

        await site.post()
        site.shop.allows = False
        banned = await site.post()
        assert banned.status in {401, 403}
        assert b"payment" not in banned.body

    async def test_h110_h115_while_the_first_is_at_work_the_second_is_told_when_to_come_back(
        self, open_site: OpenSite
    ) -> None:
        site = await open_site(patience=SHORT)

        async with site.held() as first:
            second = await site.post()
        answered = await first
        third = await site.post()

        assert (second.status, second.code) == (409, "in_progress")
        assert int(second.headers["retry-after"]) >= 1  # H204
        assert answered.status == 201
        assert third.is_replay
        assert (site.shop.runs, site.payments) == (1, [1])

    async def test_h111_or_it_waits_for_the_firsts_answer(self, open_site: OpenSite) -> None:
        site = await open_site(patience=SHORT, wait=timedelta(seconds=LONG))

        async with site.held():
            second = asyncio.create_task(site.post())
        reply = await second

        assert (reply.status, reply.is_replay) == (201, True)
        assert site.payments == [1]

    async def test_h131_a_refusal_of_the_handlers_is_an_answer(self, open_site: OpenSite) -> None:
        site = await open_site()
        site.answers(402, b"no funds")
        await site.post()
        site.succeeds()

        retry = await site.post()

        assert (retry.status, retry.body, retry.is_replay) == (402, b"no funds", True)
        assert site.shop.runs == 1

    async def test_h130_such_a_refusal_frees_the_key_where_the_route_says_so(
        self, open_site: OpenSite
    ) -> None:
        site = await open_site(on_4xx="release")
        site.answers(402, b"no funds")
        await site.post()
        site.succeeds()

        assert (await site.post(body=b'{"amount": 2}')).status == 201

    async def test_h132_an_answer_that_says_later_frees_the_key(self, open_site: OpenSite) -> None:
        site = await open_site()
        site.answers(503, b"later", [("Retry-After", "1")])
        first = await site.post()
        site.succeeds()

        retry = await site.post()

        assert (first.status, first.headers["retry-after"]) == (503, "1")
        assert (retry.status, retry.is_replay) == (201, False)

    async def test_h133_a_500_is_undone_in_a_transaction_and_stored_outside_of_one(
        self, open_site: OpenSite, mode: Mode
    ) -> None:
        site = await open_site()
        site.answers(500, b"oh")
        first = await site.post()
        site.succeeds()

        retry = await site.post()

        assert (first.status, first.body) == (500, b"oh")
        if mode.joined:
            assert (retry.status, retry.is_replay) == (201, False)
            assert site.payments == [2]  # H162
        else:
            assert (retry.status, retry.body, retry.is_replay) == (500, b"oh", True)
            assert site.payments == [1]

    async def test_h135_h136_an_exception_is_undone_in_a_transaction_and_remembered_outside(
        self, open_site: OpenSite, mode: Mode
    ) -> None:
        site = await open_site()
        site.raises(ValueError("oh"))
        first = await site.post()
        site.succeeds()

        retry = await site.post()

        assert first.status == 500
        if mode.joined:
            assert (retry.status, site.payments) == (201, [2])
        else:
            assert (retry.status, retry.code, retry.is_replay) == (500, "attempt_failed", True)
            assert (first.code, first.body) == (retry.code, retry.body)
            assert site.payments == [1]

    async def test_h134_an_exception_that_is_declared_harmless_frees_the_key(
        self, open_site: OpenSite
    ) -> None:
        site = await open_site(retryable=(ConnectionError,))
        site.raises(ConnectionError("before any effect"))
        await site.post()
        site.succeeds()

        assert (await site.post()).status == 201

    async def test_h180_h181_h183_after_the_retention_the_key_is_new(
        self, open_site: OpenSite, clock: Clock
    ) -> None:
        site = await open_site(retention=timedelta(hours=1))
        await site.post()

        clock.advance(timedelta(minutes=59))
        assert (await site.post()).is_replay
        clock.advance(timedelta(minutes=1))
        again = await site.post()  # H188

        assert (again.status, again.is_replay) == (201, False)
        assert site.payments == [1, 2]

    async def test_h076_h077_h078_h081_headers_come_back_but_for_cookies(
        self, open_site: OpenSite
    ) -> None:
        site = await open_site()
        cookies = [("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")]
        site.answers(201, b"x", [("Location", "/pay/1"), ("ETag", '"1"'), *cookies])

        first, retry = await site.post(), await site.post()

        assert first.headers.get_list("set-cookie") == ["a=1", "b=2"]
        assert "set-cookie" not in retry.headers
        assert (retry.headers["location"], retry.headers["etag"]) == ("/pay/1", '"1"')
        assert retry.headers["content-length"] == "1"  # H082

    async def test_h203_a_browser_is_told_by_a_page(self, open_site: OpenSite) -> None:
        site = await open_site()
        await site.post()

        reply = await site.post(body=b"other", headers={"Accept": "text/html"})

        assert reply.status == 422
        assert reply.headers["content-type"].startswith("text/html")
