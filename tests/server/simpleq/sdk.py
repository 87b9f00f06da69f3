"""What SimpleQ's SDK does on the wire, restated: its requests, and what it reads of the answers.

Only what it reads is read here, and as strictly: a member that it does not know is ignored; one
that it needs, and that is missing or of another type, is a failure.
"""

import json
import re
from datetime import datetime
from typing import Any, NamedTuple
from uuid import uuid4

from tests.fixtures.served import Api, Reply

STATUSES = {"pending", "processing", "awaiting_ack", "completed", "dead"}
OUTCOMES = {"success", "failed", "nacked", "deferred"}
RETRIED = {429, 500, 502, 503, 504}
TRIES = 3


class SimpleQError(Exception):
    """Any answer that is not 2xx: status, a message for people, and the fields where there are."""

    def __init__(self, reply: Reply) -> None:
        self.status = reply.status
        told = reply.json["error"]
        self.fields: dict[str, list[str]] = {}
        if isinstance(told, str):
            message = told
        else:
            self.fields = told["fieldErrors"]
            messages = [*told["formErrors"], *(m for each in self.fields.values() for m in each)]
            assert all(isinstance(one, str) for one in messages)
            message = "; ".join(messages)
        assert message
        super().__init__(message)
        after = reply.headers.get("retry-after")
        # Seconds as a number, and nothing else: a date would be ignored.
        self.retry_after = None if after is None else float(after)


class Published(NamedTuple):
    id: str
    status: str
    created_at: datetime


class SimpleQ:
    """A client with an API key, on somebody's base URL."""

    def __init__(self, api: Api, key: str) -> None:
        self._api = api
        self._headers = {
            "authorization": f"Bearer {key}",
            "content-type": "application/json",
            "accept": "application/json",
            "user-agent": "simpleq-node/1.4.0",
        }
        self.waits: list[float | None] = []
        """Before each further try: what Retry-After said."""

    async def publish(
        self,
        queue: str,
        payload: dict[str, Any],
        *,
        idempotency_key: str | None = None,
        delay: float | None = None,
    ) -> Published:
        """A key is made where none is given: once, for all tries of this call."""
        body: dict[str, Any] = {
            "payload": payload,
            "idempotencyKey": str(uuid4()) if idempotency_key is None else idempotency_key,
        }
        if delay is not None:
            body["delay"] = delay
        told = await self._request("POST", f"/v1/queues/{queue}/jobs", body)
        assert isinstance(told["id"], str)
        assert told["status"] in STATUSES
        return Published(told["id"], told["status"], moment(told["createdAt"]))

    async def get_job(self, job_id: str) -> dict[str, Any]:
        told = await self._request("GET", f"/v1/jobs/{job_id}")
        check_job(told)
        return dict(told)

    async def ack(self, job_id: str) -> None:
        await self._callback(job_id, "ack", {})

    async def nack(self, job_id: str, **said: Any) -> None:
        await self._callback(job_id, "nack", said)

    async def defer(self, job_id: str, retry_after: float, **said: Any) -> None:
        await self._callback(job_id, "defer", {"retryAfter": retry_after, **said})

    async def _callback(self, job_id: str, word: str, body: dict[str, Any]) -> None:
        told = await self._request("POST", f"/v1/jobs/{job_id}/{word}", body)
        assert (told["id"], told["accepted"]) == (job_id, True)

    async def _request(self, method: str, path: str, body: Any = None) -> Any:
        raw = b"" if body is None else json.dumps(body).encode()
        for left in reversed(range(TRIES)):
            reply = await self._api.send(method, path, [raw], list(self._headers.items()))
            if 200 <= reply.status < 300:
                return reply.json
            error = SimpleQError(reply)
            if reply.status not in RETRIED or not left:
                raise error
            self.waits.append(error.retry_after)
        raise AssertionError


def check_job(told: Any) -> None:
    """Every member that its types promise."""
    for name in ("id", "queue", "scheduledFor", "createdAt"):
        assert isinstance(told[name], str), name
    assert told["status"] in STATUSES
    assert isinstance(told["attempts"], int)
    assert isinstance(told["maxAttempts"], int)
    assert isinstance(told["deferCount"], int)
    assert isinstance(told["payload"], dict)
    for name in ("idempotencyKey", "lastError", "completedAt"):
        assert told[name] is None or isinstance(told[name], str), name
    for name in ("scheduledFor", "createdAt", "completedAt"):
        if told[name] is not None:
            moment(told[name])
    for entry in told["history"]:
        assert isinstance(entry["attempt"], int)
        assert entry["status"] in OUTCOMES
        assert entry["error"] is None or isinstance(entry["error"], str)
        code = entry["webhookStatusCode"]
        assert code is None or isinstance(code, int)
        moment(entry["timestamp"])


def moment(text: str) -> datetime:
    """As JavaScript's Date writes it: milliseconds and Z."""
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", text), text
    return datetime.fromisoformat(text)
