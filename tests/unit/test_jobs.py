"""Filters of jobs: which are stored, and which are refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from onefold import InvalidInput
from onefold.operations.jobs import JobFilter, job_filter

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("state", "states", "retrying", "due"),
    [
        (None, None, None, None),
        ((), None, None, None),
        ("scheduled", (0,), False, False),
        ("ready", (0,), False, True),
        ("retrying", (0,), True, None),
        ("running", (1,), None, None),
        ("completed", (2,), None, None),
        ("dead", (3,), None, None),
        ("cancelled", (4,), None, None),
        (["dead"], (3,), None, None),
        (["dead", "cancelled"], (3, 4), None, None),
        (("ready", "running", "retrying", "scheduled"), (0, 1), None, None),
    ],
)
def test_a_state_selects_what_is_stored(
    state: Any, states: tuple[int, ...] | None, *, retrying: bool | None, due: bool | None
) -> None:
    assert job_filter(state=state) == JobFilter(states=states, retrying=retrying, due=due)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"state": "lost"}, "state"),
        ({"state": ["dead", "lost"]}, "state"),
        ({"state": ["dead", "ready"]}, "state"),
        ({"queue": "a,b"}, "queue"),
        ({"kind": ""}, "kind"),
        ({"unique_key": ""}, "unique_key"),
        ({"reason": 7}, "reason"),
        ({"error_type": "\x00"}, "error_type"),
        ({"created_from": AT.replace(tzinfo=None)}, "created_from"),
        ({"created_before": AT.replace(tzinfo=None)}, "created_before"),
        ({"ended_from": AT.replace(tzinfo=None)}, "ended_from"),
        ({"ended_before": AT.replace(tzinfo=None)}, "ended_before"),
        ({"tag": ""}, "tag"),
    ],
)
def test_a_bad_filter_is_refused_by_name(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        job_filter(**options)

    assert caught.value.field == field
