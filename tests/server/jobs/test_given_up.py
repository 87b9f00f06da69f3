"""A request whose time is over: what it has begun is whole or gone, and its key is free again."""

import asyncio

import pytest

from tests.fixtures.served import Api

TRIES = 5


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
@pytest.mark.parametrize("milliseconds", [0, 0.3, 1, 2, 3, 5, 8])
async def test_a_keyed_request_that_was_given_up_can_be_sent_again_at_once(
    api: Api, milliseconds: float
) -> None:
    """Wherever it was broken off: before its claim, at work, or while its answer was stored."""
    await api.queue()
    loop = asyncio.get_running_loop()
    for number in range(TRIES):
        job = await api.publish()
        path, key = f"/v1/jobs/{job['id']}/cancel", f"cancel-{number}"

        first = asyncio.create_task(api("POST", path, {}, idempotency_key=key))
        loop.call_later(milliseconds / 1000, first.cancel)
        await asyncio.wait({first})
        again = await api("POST", path, {}, idempotency_key=key)

        assert again.status == 200, again.body


async def test_who_comes_while_the_first_is_at_work_is_not_sent_away_for_a_whole_lease(
    api: Api,
) -> None:
    await api.queue()
    job = await api.publish()

    replies = await asyncio.gather(
        *(
            api("POST", f"/v1/jobs/{job['id']}/cancel", {}, idempotency_key="cancel")
            for _ in range(8)
        )
    )

    assert len({reply.body for reply in replies if reply.status == 200}) == 1
    for busy in (reply for reply in replies if reply.status != 200):
        busy.problem(409, "in_progress")
        assert busy.headers["retry-after"] == "1"
