"""A job as users see it."""

from datetime import timedelta
from typing import Any

from onefold import Enqueued, EnqueuedMany, Fixed, Job, Retention
from onefold.model.attempt import Attempt, history
from onefold.model.timestamps import EPOCH, MICROSECOND
from tests.fixtures.rows import job_row


def job(**fields: Any) -> Job:
    return Job.from_row(job_row(**{"payload_text": '{"to":42}', **fields}))


def test_each_column_is_in_the_field_of_its_name() -> None:
    options = (
        '{"backoff":{"type":"fixed","base":7.0},"keep":{"dead":8},"timeout":9,"tags":["tag"],'
        '"metadata":{"a":1},"result":true,"trace":{"b":"c"},"tick":10,"published":"key"}'
    )
    values = {
        "tenant": "acme", "kind": "letter", "queue": "mail", "priority": 1, "attempt": 2,
        "max_attempts": 3, "fence": 4, "generation": 5, "defers": 6, "worker": "w",
        "unique_key": "once", "group_key": "group", "reason": "why",
    }  # fmt: skip
    moments = {
        "run_at": 11, "created_at": 12, "taken_at": 13, "lease_until": 14, "ended_at": 15,
        "expires_at": 16,
    }  # fmt: skip
    micros = {f"{name}_micros": value for name, value in moments.items()}
    texts = {"error_text": '{"type":"E"}', "result_text": "17", "payload_text": "18"}
    found = job(state_number=1, options_text=options, **values, **micros, **texts)

    assert {name: getattr(found, name) for name in values} == values
    assert {name: getattr(found, name) for name in moments} == {
        name: EPOCH + timedelta(microseconds=value) for name, value in moments.items()
    }
    assert (found.state, found.error, found.pushed) == ("running", {"type": "E"}, None)
    assert (found.result, found.payload) == (17, 18)
    assert (found.tags, found.metadata, found.trace) == (("tag",), {"a": 1}, {"b": "c"})
    assert (found.idempotency_key, found.store_result) == ("key", True)
    assert (found.timeout, found.tick) == (9 * MICROSECOND, EPOCH + 10 * MICROSECOND)
    assert found.backoff == Fixed(timedelta(seconds=7))
    assert found.retention == Retention(dead=8 * MICROSECOND)


def test_a_delivery_that_ended_while_we_looked_is_told_once() -> None:
    ended = Attempt(1, 1, "w", EPOCH, EPOCH, "retried")

    assert history(job(state_number=1, fence=1), [ended]) == [ended]


def test_the_payload_is_not_printed() -> None:
    found = job(payload_text='{"card":"4242"}')

    assert "4242" not in repr(found)
    assert repr(found) == (
        f"Job(id={found.id!r}, kind='email', queue='default', state='ready', attempt=0, fence=0)"
    )


def test_the_answer_to_a_batch_is_a_sequence_with_counts() -> None:
    items = [Enqueued("1"), Enqueued("1", duplicate=True), Enqueued("2")]

    many = EnqueuedMany.of(items)

    assert (many.inserted, many.skipped, len(many)) == (2, 1, 3)
    assert list(many) == items
    assert many[1] is items[1]
    assert many[1:] == tuple(items[1:])
    assert items[2] in many
    assert repr(many) == "EnqueuedMany(inserted=2, skipped=1)"
    assert (EnqueuedMany.of(()).inserted, EnqueuedMany.of(()).skipped) == (0, 0)
