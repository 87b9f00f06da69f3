"""What only upper layers ask of the engine: their tests run it, and these cover it."""

from datetime import timedelta
from math import nan

from onefold import NewJob, Onefold, QueueSettings
from onefold.claims import Won
from onefold.model.job_options import Options, encode_options, read_options
from onefold.model.queue import SECRETS, SigningSecret, new_secret
from onefold.model.retry import whole_seconds
from onefold.operations import claims
from tests.fixtures.place import Place, place, postgres_place
from tests.fixtures.rows import NOW

__all__ = ["place", "postgres_place"]

DAY = timedelta(days=1)


def test_a_wait_that_is_no_number_is_the_least() -> None:
    assert whole_seconds(nan, least=3) == 3


def test_a_trace_is_stored_beside_what_else_is_said_of_a_job() -> None:
    new_job = NewJob("email", trace={"traceparent": "00-1"}, idempotency_key="k")

    assert read_options(encode_options(new_job, exists=False)) == Options(
        trace={"traceparent": "00-1"}, published="k"
    )


def test_old_secrets_sign_along_for_a_while_and_not_longer_than_they_would_have() -> None:
    from onefold.model.timestamps import from_micros

    now = from_micros(NOW)
    old, soon, over, new = (new_secret() for _ in range(4))
    settings = QueueSettings(
        signing_secret=old,
        previous_secrets=(
            SigningSecret(soon, now + timedelta(hours=1)),
            SigningSecret(over, now - timedelta(hours=1)),
        ),
    )

    assert settings.rotated(new, now=now, overlap=DAY).secrets == (
        SigningSecret(new),
        SigningSecret(old, now + DAY),
        SigningSecret(soon, now + timedelta(hours=1)),
    )
    alone = QueueSettings(signing_secret=old)
    assert alone.rotated(old, now=now, overlap=DAY).secrets == (SigningSecret(old),)
    for _ in range(SECRETS + 3):
        settings = settings.rotated(new_secret(), now=now, overlap=DAY)
    assert len(settings.secrets) == SECRETS


def test_a_secret_is_rotated_where_there_is_a_queue(place: Place) -> None:
    with place.open() as onefold:
        said = onefold.queues.save("payments", QueueSettings(endpoint="https://example.com/hook"))
        (first,) = said.secrets

        turned = onefold.queues.rotate_secret("payments", overlap=DAY)

        assert turned is not None
        newest, before = turned.secrets
        assert newest != first
        assert before.secret == first.secret
        assert before.expires_at is not None
        assert onefold.queues.rotate_secret("nothing") is None


def test_a_lease_that_is_ended_lets_the_next_one_in(place: Place) -> None:
    with place.open() as onefold:
        won = _claim(onefold)

        onefold.context.database.transact(lambda sql: claims.lapse(sql, won.claim))

        assert _claim(onefold).claim.fence > won.claim.fence


def _claim(onefold: Onefold) -> Won:
    answer = onefold.claim("import", "1", lease=DAY, takeover="rerun")
    assert isinstance(answer, Won)
    return answer
