"""What is sent, and that receivers of both sorts can verify it."""

import hashlib
import hmac
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from onefold import Job, __version__
from onefold.push.deliver import body_of, headers_of
from onefold.web.http import HttpRequest
from onefold.web.webhooks import Secret, StandardWebhooks, verify
from onefold.web.webhooks.signing import Signer
from tests.fixtures.rows import job_row

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
NEW = Secret("whsec_" + "bmV3" * 8, "1")
OLD = Secret("whsec_" + "b2xk" * 8, "2", NOW + timedelta(hours=1))
OLDEST = Secret("whsec_" + "YWdl" * 8, "3", NOW + timedelta(minutes=30))


def a_job(payload: str = '{"orderId":"9482"}', *, queue: str = "payments", tenant: str = "") -> Job:
    row = job_row(
        tenant=tenant, queue=queue, kind="charge", state_number=1, attempt=2, fence=5, defers=3,
        payload_text=payload,
    )  # fmt: skip
    return Job.from_row(row)


def verified(headers: dict[str, str], body: bytes, *secrets: Secret, now: datetime = NOW) -> str:
    request = HttpRequest(method="POST", path="/", headers=tuple(headers.items()))
    return verify(StandardWebhooks(list(secrets)), request, body, now).id


def test_the_envelope_is_simpleqs_and_ours() -> None:
    job = a_job()
    envelope = msgspec.json.decode(body_of(job))

    assert list(envelope) == [
        "id", "queue", "payload", "attempt", "maxAttempts", "deferCount", "createdAt", "kind",
        "fence", "generation",
    ]  # fmt: skip
    assert envelope | {"createdAt": None} == {
        "id": job.id, "queue": "payments", "payload": {"orderId": "9482"}, "attempt": 2,
        "maxAttempts": 8, "deferCount": 3, "createdAt": None, "kind": "charge", "fence": 5,
        "generation": 0,
    }  # fmt: skip
    made = datetime.fromisoformat(envelope["createdAt"])
    assert abs(datetime.now(UTC) - made) < timedelta(minutes=1)
    assert len(envelope["createdAt"]) == len("2026-03-01T12:00:00.000Z")


def test_our_own_receiver_and_simpleqs_verify_it() -> None:
    job = a_job()
    body = body_of(job)
    headers = headers_of(job, body, Signer([NEW]), now=NOW)

    assert verified(headers, body, NEW) == job.id == headers["webhook-id"]
    assert headers["x-simpleq-signature"] == simpleqs(NEW, body)
    assert headers["Onefold-Fence"] == "5"
    assert headers["Onefold-Attempt"] == "2"
    assert headers["User-Agent"] == f"onefold/{__version__}"
    assert headers["Content-Type"] == "application/json"


def simpleqs(secret: Secret, body: bytes) -> str:
    """As SimpleQ's adapters make it: the secret is text, and the body is all there is."""
    return f"sha256={hmac.new(secret.text.encode(), body, hashlib.sha256).hexdigest()}"


@pytest.mark.parametrize(
    ("secrets", "hours", "signs"),
    [
        ([NEW, OLD], 0, OLD),
        ([NEW, OLD], 1, NEW),
        ([NEW, OLD, OLDEST], 0, OLDEST),
        ([NEW, OLD, OLDEST], 0.5, OLD),
        ([NEW, OLD, OLDEST], 1, NEW),
        ([NEW, Secret(OLD.text, "2")], 0, NEW),  # two for good: nothing is rotated
    ],
)
def test_while_secrets_are_rotated_simpleqs_signature_is_the_old_ones(
    secrets: list[Secret], hours: float, signs: Secret
) -> None:
    job, now = a_job(), NOW + timedelta(hours=hours)
    body = body_of(job)

    headers = headers_of(job, body, Signer(secrets), now=now)

    assert headers["x-simpleq-signature"] == simpleqs(signs, body)


def test_headers_of_the_queue_go_along_and_never_win() -> None:
    job = a_job()
    more = {"X-Team": "billing", "WEBHOOK-ID": "forged", "content-type": "text/plain", "Host": "x"}
    headers = headers_of(job, b"{}", Signer([NEW]), now=NOW, more=more)

    assert headers["X-Team"] == "billing"
    assert headers["webhook-id"] == job.id
    assert {name for name in headers if name.lower() in {"webhook-id", "content-type"}} == {
        "webhook-id",
        "Content-Type",
    }
    assert "Host" not in headers


def test_a_queue_may_accept_something_else_and_without_a_secret_nothing_is_signed() -> None:
    assert headers_of(a_job(), b"{}", None, now=NOW)["Accept"] == "*/*"

    headers = headers_of(a_job(), b"{}", None, now=NOW, more={"accept": "text/plain"})
    assert [text for name, text in headers.items() if name.lower() == "accept"] == ["text/plain"]
    assert not any("signature" in name for name in headers)
