"""What only upper layers ask of the engine: their tests run it, and these cover it."""

from datetime import timedelta
from math import nan

from onefold import NewJob, Onefold
from onefold.claims import Won
from onefold.model.job_options import Options, encode_options, read_options
from onefold.model.retry import whole_seconds
from onefold.operations import claims
from tests.fixtures.place import Place, place, postgres_place

__all__ = ["place", "postgres_place"]

DAY = timedelta(days=1)


def test_a_wait_that_is_no_number_is_the_least() -> None:
    assert whole_seconds(nan, least=3) == 3


def test_a_trace_is_stored_beside_what_else_is_said_of_a_job() -> None:
    new_job = NewJob("email", trace={"traceparent": "00-1"}, idempotency_key="k")

    assert read_options(encode_options(new_job, exists=False)) == Options(
        trace={"traceparent": "00-1"}, published="k"
    )


def test_a_lease_that_is_ended_lets_the_next_one_in(place: Place) -> None:
    with place.open() as onefold:
        won = _claim(onefold)

        onefold.context.database.transact(lambda sql: claims.lapse(sql, won.claim))

        assert _claim(onefold).claim.fence > won.claim.fence


def _claim(onefold: Onefold) -> Won:
    answer = onefold.claim("import", "1", lease=DAY, takeover="rerun")
    assert isinstance(answer, Won)
    return answer
