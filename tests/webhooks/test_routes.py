"""A webhook, or a receiver of pushed jobs, at a route of Starlette or FastAPI: no redirect."""

from typing import Any

import fastapi
import httpx
import pytest
from starlette.applications import Starlette

from onefold import InvalidInput, Onefold
from onefold.client import Client, PushedJob, Receiver
from onefold.web.fastapi import receives as fastapi_receives
from onefold.web.webhooks import Received, StandardWebhooks, Webhook
from tests.client.test_receiver import SECRET, body_of, signed
from tests.http.apps_talk import served

PATH = "/hooks/payments"


@pytest.fixture
def seen() -> list[Any]:
    """What the handlers were given."""
    return []


@pytest.fixture
def webhook(sqlite_url: str) -> Webhook:
    onefold = Onefold(sqlite_url)
    onefold.migrate()
    return Webhook(onefold, StandardWebhooks(SECRET), name="payments")


@pytest.fixture
def receiver(webhook: Webhook) -> Receiver:
    return Receiver(SECRET, dedupe=webhook.settings.onefold, name="pushed")


def post(app: Any, path: str = PATH) -> list[int]:
    """Two deliveries, over a real socket, by a sender that follows no redirect."""
    body = body_of(payload=5)
    headers = dict(signed(body).headers)
    with served(app) as url:
        sent = [httpx.post(f"{url}{path}", content=body, headers=headers) for _ in range(2)]
    return [answer.status_code for answer in sent]


def test_its_application_has_a_route(receiver: Receiver, seen: list[Any]) -> None:
    receiver.process(seen.append)
    app: Any = Starlette()
    app.add_route(PATH, receiver.asgi, methods=["POST"])

    assert post(app) == [200, 200]
    assert len(seen) == 1


def test_what_is_mounted_answers_behind_a_slash(webhook: Webhook, seen: list[Any]) -> None:
    """Without it, Starlette's router answers by itself: what it mounts is not asked."""
    webhook.process(seen.append)
    app = fastapi.FastAPI()
    app.mount(PATH, webhook.asgi)

    assert post(app, f"{PATH}/") == [200, 200]
    assert post(app) == [307, 307]


def test_in_ack_mode_the_answer_comes_first(webhook: Webhook, seen: list[Any]) -> None:
    """The word to the server fails: nobody listens there."""
    with Client("http://127.0.0.1:9", api_key="of_key", tries=1) as client:
        receiver = Receiver(SECRET, dedupe=webhook.settings.onefold, mode="ack", client=client)
        app = fastapi.FastAPI()

        @app.post(PATH)
        @fastapi_receives(receiver)
        async def pay(job: PushedJob) -> None:
            seen.append(job.payload)

        assert post(app) == [202, 202]

    assert seen == [5]


def test_a_handler_of_a_receiver_takes_a_pushed_job(receiver: Receiver) -> None:
    with pytest.raises(InvalidInput, match="annotated PushedJob"):

        @fastapi_receives(receiver)
        async def pay(event: Received) -> None: ...
