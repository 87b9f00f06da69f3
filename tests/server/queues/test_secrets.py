"""Secrets of queues: made, shown to few, rotated without a gap."""

import asyncio
from datetime import UTC, datetime, timedelta

from onefold.model.queue import SECRETS, QueueSettings, SigningSecret
from tests.fixtures.colours import Clock
from tests.fixtures.served import Api

ENDPOINT = {"endpoint": "https://example.com/hook"}
NOW = datetime(2020, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


async def test_a_queue_with_an_endpoint_has_a_secret_that_a_look_at_it_does_not_show(
    api: Api,
) -> None:
    assert (await api("PUT", "/v1/queues/pulled", {})).json["signingSecret"] is None
    secret = (await api("PUT", "/v1/queues/q", ENDPOINT)).json["signingSecret"]

    for path in ("/v1/queues/q", "/v1/queues"):
        assert secret.encode() not in (await api("GET", path)).body
    told = (await api("GET", "/v1/queues/q/secret")).json
    assert told == {
        "signingSecret": secret,
        "secrets": [{"secret": secret, "expiresAt": None}],
    }


async def test_the_old_secret_signs_along_for_a_day(api: Api, clock: Clock) -> None:
    old = (await api("PUT", "/v1/queues/q", ENDPOINT)).json["signingSecret"]

    told = (await api("POST", "/v1/queues/q/secret")).json

    assert told["signingSecret"] not in {old, None}
    assert told["secrets"][1] == {"secret": old, "expiresAt": "2020-01-02T00:00:00Z"}
    clock.advance(timedelta(days=1))
    again = (await api("POST", "/v1/queues/q/secret", {"overlap": 60})).json
    assert [each["secret"] for each in again["secrets"]] == [
        again["signingSecret"],
        told["signingSecret"],
    ]


async def test_of_two_rotations_at_once_both_secrets_sign(api: Api) -> None:
    await api("PUT", "/v1/queues/q", ENDPOINT)

    replies = await asyncio.gather(*(api("POST", "/v1/queues/q/secret") for _ in range(3)))

    told = {reply.json["signingSecret"] for reply in replies}
    signing = (await api("GET", "/v1/queues/q/secret")).json["secrets"]
    assert len(told) == 3
    assert told < {each["secret"] for each in signing}


def test_a_rotation_makes_no_old_secret_live_longer_and_a_known_one_the_newest() -> None:
    soon, over = SigningSecret("old", NOW + timedelta(minutes=1)), SigningSecret("over", NOW)
    settings = QueueSettings(signing_secret="present", previous_secrets=(soon, over))
    present = SigningSecret("present", NOW + HOUR)

    signing = settings.rotated("new", now=NOW, overlap=HOUR).secrets
    known = settings.rotated("old", now=NOW, overlap=HOUR).secrets

    assert signing == (SigningSecret("new"), present, soon)
    assert known == (SigningSecret("old"), present)
    settings = QueueSettings()
    for number in range(2 * SECRETS):
        settings = settings.rotated(str(number), now=NOW, overlap=HOUR)
    assert len(settings.secrets) == SECRETS
    assert settings.signing_secret == str(2 * SECRETS - 1)
