"""The loop of tries, stepped by hand: no server, no clock but the test's."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from onefold.client.connection import RetryPolicy, send_until_answered
from onefold.client.problems import Unreachable
from onefold.client.requests import ClientRequest, ClientResponse
from onefold.errors import ConflictingOptions, InvalidInput
from onefold.runtime import Pause

REQUEST = ClientRequest(method="POST", path="/v1/queues/email/jobs", body=b"{}")
AWAY = Unreachable("http://localhost", "refused")


class Stepper:
    """Drives a procedure with the answers of a test, and a clock that its pauses move."""

    def __init__(self, retry: RetryPolicy, *, jitter: float = 1.0) -> None:
        self.now = 100.0
        self.pauses: list[float] = []
        self.sent: list[ClientRequest] = []
        self._procedure = send_until_answered(
            REQUEST, retry, clock=lambda: self.now, jitter=lambda: jitter
        )

    def given(self, *answers: ClientResponse | Unreachable, takes: float = 0.0) -> ClientResponse:
        """The end of the procedure, where these are its answers."""
        left = list(answers)
        step: Any = next(self._procedure)
        try:
            while True:
                if isinstance(step, Pause):
                    self.pauses.append(step.seconds)
                    self.now += step.seconds
                    step = self._procedure.send(None)
                    continue
                self.sent.append(step.request)
                self.now += takes
                answer = left.pop(0)
                if isinstance(answer, Unreachable):
                    step = self._procedure.throw(answer)
                else:
                    step = self._procedure.send(answer)
        except StopIteration as finished:
            reply: ClientResponse = finished.value
            return reply
        finally:
            assert left == []


def said(status: int, code: str = "", **headers: str) -> ClientResponse:
    names = {"content-type": "application/problem+json"}
    names |= {name.replace("_", "-"): value for name, value in headers.items()}
    return ClientResponse(status, names, msgspec.json.encode({"code": code}))


MADE = said(201)
DATED = {"retry_after": "Fri, 31 Dec 1999 23:59:59 GMT", "date": "Fri, 31 Dec 1999 23:59:50 GMT"}
TEN_SECONDS = RetryPolicy(deadline=timedelta(seconds=10))


@pytest.mark.parametrize(
    ("retry", "answers", "status", "pauses"),
    [
        *((RetryPolicy(), [said(one), MADE], 201, [0.25]) for one in (429, 500, 502, 503, 504)),
        *(
            (RetryPolicy(), [said(final)], final, [])
            for final in (200, 201, 301, 400, 401, 403, 404, 408, 409, 410, 413, 422)
        ),
        # A lease that is lost, and one that the request itself has lost.
        (RetryPolicy(), [said(409, "lease_lost")], 409, []),
        (RetryPolicy(), [said(409, "lease_lost", retry_after="1"), MADE], 201, [1.0]),
        (RetryPolicy(), [said(409, "in_progress", retry_after="3"), MADE], 201, [3.0]),
        (RetryPolicy(), [said(500, "attempt_failed")], 500, []),
        (RetryPolicy(tries=9), [*[AWAY] * 8, MADE], 201, [0.25, 0.5, 1.0, 2.0, 4.0, *[8.0] * 3]),
        (RetryPolicy(tries=3), [said(500), said(500), said(502)], 502, [0.25, 0.5]),
        (RetryPolicy(), [said(429, retry_after="7"), MADE], 201, [7.0]),
        (RetryPolicy(), [said(429, **DATED), MADE], 201, [9.0]),
        *(
            (RetryPolicy(), [said(429, retry_after=no), MADE], 201, [0.25])
            for no in ("no", "0", "-5")
        ),
        (TEN_SECONDS, [said(503, retry_after="3600")], 503, []),
    ],
)
def test_what_passes_is_sent_again_after_a_pause_and_every_other_answer_is_the_last(
    retry: RetryPolicy, answers: list[Any], status: int, pauses: list[float]
) -> None:
    stepper = Stepper(retry)
    reply = stepper.given(*answers)
    assert (reply.status, reply.tries, stepper.pauses) == (status, len(answers), pauses)


def test_jitter_shortens_a_pause_by_half_at_most() -> None:
    stepper = Stepper(RetryPolicy(), jitter=0.0)
    stepper.given(AWAY, AWAY, MADE)
    assert stepper.pauses == [0.125, 0.25]


def test_after_the_last_try_without_an_answer_the_error_counts_them() -> None:
    with pytest.raises(Unreachable, match="tried 3 times") as failed:
        Stepper(RetryPolicy(tries=3)).given(AWAY, said(500), AWAY)

    assert failed.value.tries == 3


def test_no_pause_goes_beyond_the_deadline() -> None:
    stepper = Stepper(RetryPolicy(deadline=timedelta(seconds=1.5)))

    with pytest.raises(Unreachable):
        stepper.given(AWAY, AWAY, AWAY)

    assert stepper.pauses == [0.25, 0.5]


def test_a_try_has_no_longer_than_what_is_left() -> None:
    stepper = Stepper(RetryPolicy(deadline=timedelta(seconds=60), timeout=timedelta(seconds=30)))
    stepper.given(AWAY, said(201), takes=40)

    assert [round(sent.timeout, 2) for sent in stepper.sent] == [30.0, 19.75]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"tries": 0}, "tries"),
        ({"tries": True}, "tries"),
        ({"timeout": 30}, "timeout"),
        ({"deadline": timedelta(0)}, "deadline"),
        ({"first_pause": timedelta(seconds=9)}, "longest_pause"),
    ],
)
def test_a_policy_that_cannot_be_meant_is_rejected(options: Any, field: str) -> None:
    with pytest.raises((InvalidInput, ConflictingOptions)) as refused:
        RetryPolicy(**options)

    assert refused.value.field == field
