"""From a publish to a receiver and back: the server pushes, the receiver runs it once and tells."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from onefold import Defer, Onefold, QueueSettings
from onefold.client import Client, PushedJob, Receiver
from onefold.server import create_app
from onefold.server.app import ServerSettings
from tests.http.apps_talk import served, served_wsgi
from tests.kill.workers import until

LOOPBACK = ServerSettings(
    anonymous=True, access_log=False, push_allow=("127.0.0.1",), grace=timedelta(seconds=5)
)


@pytest.fixture
def client(sqlite_url: str) -> Iterator[Client]:
    with Onefold(sqlite_url) as onefold:
        onefold.migrate()
        with served(create_app(onefold, LOOPBACK)) as url, Client(url) as client:
            yield client


class Handler:
    """Fails once with each of a list of ends, and then does its work."""

    def __init__(self, *ends: Exception) -> None:
        self._ends = list(ends)
        self.seen: list[PushedJob] = []

    def __call__(self, job: PushedJob) -> dict[str, Any]:
        self.seen.append(job)
        if self._ends:
            raise self._ends.pop(0)
        return {"paid": job.payload["amount"]}


@pytest.mark.parametrize("mode", ["standard", "ack"])
@pytest.mark.parametrize("server", ["asgi", "wsgi"])
def test_a_pushed_job_is_run_and_told_of(
    client: Client, tmp_path: Path, mode: Any, server: str
) -> None:
    secret = client.queues.save(
        "payments", QueueSettings(endpoint="http://127.0.0.1:1/")
    ).signing_secret
    assert secret is not None
    handler = Handler(Defer(timedelta(0)))
    with Onefold(f"sqlite:///{tmp_path / 'shop.db'}") as shop:
        shop.migrate()
        receiver = Receiver(secret, dedupe=shop, mode=mode, client=client)
        receiver.process(handler)
        app = (
            served_wsgi(receiver.wsgi)
            if server == "wsgi"
            else served(receiver.asgi, lifespan="off")
        )
        with app as url:
            client.queues.save("payments", QueueSettings(endpoint=f"{url}/jobs", mode=mode))
            made = client.enqueue("charge", {"amount": 5}, queue="payments")

            def is_done() -> bool:
                job = client.get(made.id)
                return job is not None and job.state == "completed"

            until(is_done, "the job is not completed")
        job = client.get(made.id)

    assert job is not None
    assert [seen.attempt for seen in handler.seen] == [1, 1]
    assert (job.attempt, job.fence) == (1, 2)
    if mode == "ack":
        assert job.result == {"paid": 5}
