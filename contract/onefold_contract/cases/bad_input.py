"""Bad input: a typed error that names the field, before anything is stored."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, timedelta, timezone
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

import msgspec
import pytest

from onefold.errors import ConflictingOptions, InvalidInput
from onefold.model.delivery import Delivery
from onefold.model.ids import new_id
from onefold.model.job import NewJob
from onefold.model.lifecycle import Retention
from onefold_contract.cases.common import DAY, HOUR, MINUTE, SECOND, refused_field, stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from onefold_contract.subject import Subject

__all__ = ["TestBadInput", "TestBadQuestions", "TestGoodEdges"]

NAIVE: Final = datetime(2040, 1, 1)  # noqa: DTZ001 - that is the point
LONG: Final = timedelta(days=365 * 300)
NOTHING: Final = timedelta(0)
BACKWARDS: Final = timedelta(microseconds=-1)
ENDLESS: Final[list[Any]] = []
ENDLESS.append(ENDLESS)


def _empty_key(_kind: str, _payload: Any) -> str:
    return ""


def _no_key(_kind: str, _payload: Any) -> Any:
    return None


BAD_NAMES: Final[list[Any]] = [
    "", "x" * 201, None, 7, b"bytes", "a,b", "a*b", "a?b", "a[b", "a]b", "a{b", "a}b", "a\\b",
    "a\x00b", "a\nb", "a\tb", "a\x7fb", "a\x85b", "a\ud800b", ".", "..", ["a", "list"],
]  # fmt: skip

BAD_KEYS: Final[list[Any]] = ["", "x" * 513, "ü" * 257, "a\x00b", "a\ud800b", 7, b"bytes"]

BAD_IDS: Final[list[Any]] = [
    "", "nope", "x" * 1000, "a\x00b", None, 7, b"01920000-0000-7000-8000-000000000000",
    "01920000000070008000000000000000", "{01920000-0000-7000-8000-000000000000}",
    "01920000-0000-7000-8000-000000000000\n", "01920000-0000-7000-8000-00000000000g",
    "01920000-0000-7000-8000-00000000000\u0660",
]  # fmt: skip

BAD_PAYLOADS: Final[list[Any]] = [
    math.nan, math.inf, {"deep": [1, {"er": -math.inf}]}, object(), 1j, {"a": lambda: 1},
    {None: 1}, {(1, 2): 3}, "\ud800", {"\ud800": 1}, ENDLESS, "x" * (1024 * 1024),
    ["ü" * (512 * 1024)], msgspec.Raw(b"nul"), [msgspec.Raw(b"nul")],
]  # fmt: skip

BAD_MOMENTS: Final[list[Any]] = [
    NAIVE, "2040-01-01T00:00:00Z", 2_208_988_800, date(2040, 1, 1),
    datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-12))),
]  # fmt: skip

BAD_SPANS: Final[list[Any]] = [BACKWARDS, LONG, 60, 1.5, "PT1M"]

BAD: Final[dict[str, list[dict[str, Any]]]] = {
    "kind": [{"kind": name} for name in BAD_NAMES],
    "queue": [{"queue": name} for name in BAD_NAMES],
    "unique_key": [{"unique_key": key} for key in BAD_KEYS],
    "idempotency_key": [{"idempotency_key": key} for key in BAD_KEYS],
    "payload": [{"payload": payload} for payload in BAD_PAYLOADS],
    "run_at": [{"run_at": moment} for moment in BAD_MOMENTS],
    "expires_at": [{"expires_at": moment} for moment in BAD_MOMENTS],
    "delay": [{"delay": span} for span in BAD_SPANS],
    "unique_for": [{"unique_key": "k", "unique_for": span} for span in [*BAD_SPANS, NOTHING]],
    "idempotency_for": [
        {"idempotency_key": "K", "idempotency_for": span} for span in [*BAD_SPANS, NOTHING, None]
    ],
    "max_wait": [
        {"on_duplicate": "replace", "unique_key": "k", "max_wait": span} for span in BAD_SPANS
    ],
    "retention.completed": [{"retention": Retention(completed=span)} for span in BAD_SPANS],
    "retention.dead": [{"retention": Retention(dead=span)} for span in BAD_SPANS],
    "retention.cancelled": [{"retention": Retention(cancelled=span)} for span in BAD_SPANS],
    "retention": [{"retention": HOUR}, {"retention": {"completed": HOUR}}],
    "priority": [{"priority": n} for n in (-32769, 32768, 1.0, "1", None, True, [1])],
    "max_attempts": [{"max_attempts": n} for n in (0, 101, -1, 8.0, "8", None, True, [8])],
    "request_id": [{"request_id": text} for text in ("a\x00b", "\ud800", "x" * 513, 7)],
    "tags": [{"tags": ["tag"] * 51}],
    "metadata": [
        {"metadata": metadata} for metadata in (["no mapping"], {"a": object()}, {"a": "x" * 65536})
    ],
    "trace": [{"trace": "not a mapping"}],
    "backoff": [{"backoff": MINUTE}, {"backoff": "exponential"}],
    "unique": [{"unique": rule} for rule in (_empty_key, _no_key, "to")],
    "unique_while": [
        {"unique_key": "k", "unique_while": word} for word in ("forever", 1, ["queued"])
    ],
    "on_duplicate": [
        {"unique_key": "k", "on_duplicate": word} for word in ("ignore", None, ["keep"])
    ],
    "on_mismatch": [
        {"unique_key": "k", "on_mismatch": word} for word in ("ignore", None, ["keep"])
    ],
}

CONFLICTS: Final[dict[str, list[dict[str, Any]]]] = {
    "delay": [{"delay": SECOND, "run_at": datetime(2040, 1, 1, tzinfo=UTC)}],
    "unique_while": [{"unique_while": "active"}],
    "unique_for": [{"unique_for": HOUR}],
    "across_kinds": [{"across_kinds": True}],
    "max_wait": [
        {"unique_key": "k", "max_wait": MINUTE},
        {"unique_key": "k", "on_duplicate": "rerun", "max_wait": MINUTE},
    ],
    "on_mismatch": [
        {"unique_key": "k", "on_duplicate": word, "on_mismatch": "raise"}
        for word in ("replace", "rerun")
    ],
    "retention": [
        {"unique_key": "k", "unique_while": "exists", "retention": Retention(dead=NOTHING)}
    ],
}

BAD_TAKES: Final[dict[str, list[Any]]] = {
    "limit": [0, 1.0, 10_001],
    "queues": [
        5, None, [["default"]], {"default": 10_001}, "default", [], [""], {"default": 0},
    ],
    "worker": ["a\x00b"],
    "lease": [NOTHING, BACKWARDS, 60],
}  # fmt: skip

BAD_FILTERS: Final[dict[str, list[Any]]] = {
    "state": [5, [["dead"]], "lost", ["dead", "lost"], ["dead", "ready"]],
    "queue": ["a,b"],
    **{field: [""] for field in ("kind", "unique_key", "tag")},
    "reason": [7],
    "error_type": ["\x00"],
    **{f"{which}_{end}": [NAIVE] for which in ("created", "ended") for end in ("from", "before")},
    "newest_first": ["no"],
    "limit": [0, 10_001],
}

BAD_CLAIMS: Final[dict[str, list[Any]]] = {
    "key": BAD_KEYS,
    "scope": ["a\x00b", None],
    "surface": ["", "a,b"],
    "fingerprint": [""],
    "retention": [-HOUR],
}

CALL: Final = {"on_duplicate", "on_mismatch", "max_wait"}


def name(case: object) -> str | None:
    """What pytest shows for a case."""
    if isinstance(case, dict):
        # Without addresses: two workers must collect the same names.
        shown = re.sub(r" at 0x[0-9a-f]+", "", repr(cast("object", case)))
        return shown[:60].encode("ascii", "backslashreplace").decode()
    return None


class TestBadInput:
    """A bad request stores nothing, and the error names the field."""

    @pytest.mark.parametrize("field", BAD)
    def test_the_field_is_named(self, subject: Subject, field: str) -> None:
        for options in BAD[field]:
            self._refused(subject, InvalidInput, field, options)
        self._nothing_was_stored(subject)

    @pytest.mark.parametrize("field", CONFLICTS)
    def test_options_that_contradict_each_other_are_named(
        self, subject: Subject, field: str
    ) -> None:
        for options in CONFLICTS[field]:
            self._refused(subject, ConflictingOptions, field, options)
        self._nothing_was_stored(subject)

    def _refused(
        self, subject: Subject, error: type[InvalidInput], field: str, options: dict[str, Any]
    ) -> None:
        asked: dict[str, Any] = {"kind": "email", **options}
        with pytest.raises(error) as caught:
            subject.committing_errors().enqueue(**asked)
        assert (caught.value.field, caught.value.item) == (field, None), options
        assert str(caught.value).startswith(f"{field} "), options

        call: dict[str, Any] = {name: asked.pop(name) for name in CALL & asked.keys()}
        batch = [NewJob("email", unique_key="first", idempotency_key="first"), NewJob(**asked)]
        with pytest.raises(error) as caught:
            subject.committing_errors().enqueue_many(batch, **call)
        item = None if field in CALL else 1
        assert (caught.value.field, caught.value.item) == (field, item), options

    def _nothing_was_stored(self, subject: Subject) -> None:
        assert stored(subject) == 0
        assert subject.enqueue("email", unique_key="first", idempotency_key="first").inserted

    @pytest.mark.parametrize("call", ["enqueue", "enqueue_many", "find", "dead.replay"])
    def test_an_option_that_does_not_exist(self, subject: Subject, call: str) -> None:
        given: dict[str, list[Any]] = {"enqueue": ["email"], "enqueue_many": [[NewJob("email")]]}
        unknown: dict[str, Any] = {"unique_kye": "k"}
        with pytest.raises(InvalidInput) as caught:
            subject.committing_errors().attribute(call)(*given.get(call, []), **unknown)
        assert caught.value.field == "unique_kye"
        self._nothing_was_stored(subject)

    def test_a_batch_that_is_no_list_and_an_item_that_is_no_job(self, subject: Subject) -> None:
        batches: list[Any] = [None, "email", 5, NewJob("email"), {"a": 1}]
        for batch in batches:
            with pytest.raises(InvalidInput) as caught:
                subject.committing_errors().enqueue_many(batch)
            assert (caught.value.field, caught.value.item) == ("new_jobs", None), batch
        items: list[Any] = [None, "email", {"kind": "email"}]
        for item in items:
            batch = [NewJob("email", unique_key="first", idempotency_key="first"), item]
            with pytest.raises(InvalidInput, match="item 1: job must be a NewJob"):
                subject.committing_errors().enqueue_many(batch)
        self._nothing_was_stored(subject)

    def test_a_tenant_that_cannot_be_named(self, subject: Subject) -> None:
        for tenant in ("", "x" * 513, "a\x00b", "a\ud800b", None):
            assert refused_field(subject.onefold.tenant, tenant) == "tenant", tenant


class TestBadQuestions:
    """The other calls name the field too."""

    @pytest.mark.parametrize("call", ["get", "cancel", "replay", "delete", "keys.duplicates"])
    def test_an_id_that_is_none(self, subject: Subject, call: str) -> None:
        for job_id in BAD_IDS:
            assert refused_field(subject.attribute(call), job_id) == "id", job_id

    def test_takes_filters_and_claims(self, subject: Subject) -> None:
        answer = subject.enqueue("email")
        for call, bad in (
            (subject.take, BAD_TAKES),
            (subject.find, BAD_FILTERS),
            (partial(subject.claim, scope="import", key="k"), BAD_CLAIMS),
        ):
            for field, values in bad.items():
                for value in values:
                    options: dict[str, Any] = {field: value}
                    assert refused_field(call, **options) == field, options
        assert subject.existing_job(answer.id).state == "ready"

    def test_words_about_a_delivery(self, subject: Subject) -> None:
        subject.enqueue("email")
        job = subject.take_one()
        fence: Any = "1"
        nothing: Any = None
        no_jobs: Any = [None]
        bad: dict[str, Any] = {
            "after": lambda: subject.deliveries.retry([job], after=BACKWARDS),
            "reason": lambda: subject.deliveries.bury([job], reason="a\x00b"),
            "lease": lambda: subject.deliveries.heartbeat([job], lease=BACKWARDS),
            "result": lambda: subject.deliveries.finish([job], results={job.id: math.nan}),
            "id": lambda: subject.deliveries.finish([Delivery("nope", 1)]),
            "fence": lambda: subject.deliveries.finish([Delivery(job.id, fence)]),
            "fence of 65 bits": lambda: subject.deliveries.finish([Delivery(job.id, 2**63)]),
            "jobs": lambda: subject.deliveries.finish(nothing),
            "jobs that are none": lambda: subject.deliveries.finish(no_jobs),
            "results of a typo": lambda: subject.deliveries.finish([job], results={"typo": 1}),
            "results of no job": lambda: subject.deliveries.finish([job], results={new_id(): 1}),
            "results that are none": lambda: subject.deliveries.finish([job], results=no_jobs),
            "after nothing": lambda: subject.deliveries.defer([job], after=nothing),
        }
        for field, call in bad.items():
            with pytest.raises(InvalidInput) as caught:
                call()
            assert caught.value.field == field.partition(" ")[0]
        assert subject.existing_job(job.id) == job

    def test_words_about_jobs_and_deliveries(self, subject: Subject) -> None:
        job_id = subject.enqueue("email").id
        bad: list[tuple[str, Callable[[Any], object], list[Any]]] = [
            ("limit", lambda n: subject.dead.replay(limit=n), [0, -1, 1.5, "5"]),
            ("limit", lambda n: subject.dead.delete(limit=n), [0, -1, 1.5, True]),
            ("limit", lambda n: subject.deliveries.rescue(limit=n), [0, -1, 1.5, True]),
            ("fresh", lambda fresh: subject.replay(job_id, fresh=fresh), ["no"]),
            ("fresh", lambda fresh: subject.dead.replay(fresh=fresh), ["no"]),
            ("reason", lambda reason: subject.cancel(job_id, reason=reason), ["a\x00b"]),
            ("fence", lambda n: subject.deliveries.nack(job_id, fence=n), [True, 2**63, "1"]),
        ]
        for field, call, values in bad:
            for value in values:
                assert refused_field(call, value) == field, (field, value)
        assert subject.existing_job(job_id).state == "ready"


class TestGoodEdges:
    """Values at the limits are accepted."""

    def test_results_by_any_spelling_of_an_id(self, subject: Subject) -> None:
        for spell in (str.upper, UUID):
            subject.enqueue("email")
            job = subject.take_one()
            results: dict[Any, Any] = {spell(job.id): "done"}
            subject.deliveries.finish([job], results=results)
            assert subject.existing_job(job.id).result == "done"

    def test_a_payload_of_none_is_null_and_none_given_is_an_empty_object(
        self, subject: Subject
    ) -> None:
        answers = [
            subject.enqueue("email", None), *subject.enqueue_many([NewJob("email", None)]),
            subject.enqueue("email"), *subject.enqueue_many([NewJob("email")]),
        ]  # fmt: skip
        assert [subject.existing_job(answer.id).payload for answer in answers] == [
            None,
            None,
            {},
            {},
        ]

    @pytest.mark.parametrize(
        "options",
        [
            {"kind": "x" * 200},
            {"kind": "größe: mit/allem.-_+%$#@! 名前"},
            {"queue": "ü" * 200},
            {"unique_key": "x" * 512},
            {"unique_key": "\x01\n\t"},
            {"unique_key": "'; drop table job; --"},
            {"idempotency_key": "ü" * 256},
            {"payload": "x" * (1024 * 1024 - 2)},
            {"priority": -32768},
            {"priority": 32767},
            {"max_attempts": 1},
            {"max_attempts": 100},
            {"delay": NOTHING},
            {"delay": timedelta(days=365 * 100)},
            {"run_at": datetime(1970, 1, 1, tzinfo=UTC)},
            {"run_at": datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)},
            {"expires_at": datetime(9999, 12, 31, tzinfo=UTC)},
            {"unique_key": "k", "unique_for": timedelta(microseconds=1)},
            {"retention": Retention()},
            {"retention": Retention(completed=NOTHING, dead=NOTHING, cancelled=100 * DAY)},
            {"request_id": ""},
        ],
        ids=name,
    )
    def test_it_is_stored_and_found_again(self, subject: Subject, options: Any) -> None:
        asked: dict[str, Any] = {"kind": "email", **options}
        answer = subject.enqueue(**asked)
        assert answer.inserted
        job = subject.existing_job(answer.id)
        for field in ("kind", "queue", "unique_key", "payload", "priority", "run_at"):
            if field in options:
                assert getattr(job, field) == options[field]
