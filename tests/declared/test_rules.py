"""Which errors are worth a retry, which never will be, and which mean that the work is done."""

from datetime import timedelta
from typing import Any

import pytest

from onefold import (
    Bury,
    Busy,
    LeaseLost,
    OnefoldError,
    OutcomeUnknown,
    Retry,
)
from onefold.model.outcome import ErrorRules, error_rules

BUSY = Busy(key="k", retry_after=timedelta(seconds=1))


def outcome(rules: ErrorRules, error: BaseException) -> str | None:
    if rules.forgives(error):
        return "done"
    match rules.outcome_of(error):
        case Bury(reason):
            return f"bury {reason}"
        case Retry(None):
            return "retry"
        case other:
            assert other is None
            return None


def is_teapot(error: BaseException) -> bool:
    return "teapot" in str(error)


@pytest.mark.parametrize(
    ("rules", "error", "expected"),
    [
        ({}, ValueError(), None),
        ({"bury_on": ValueError}, ValueError(), "bury ValueError"),
        ({"bury_on": (ValueError,)}, UnicodeError(), "bury UnicodeError"),
        ({"bury_on": (ValueError,)}, OSError(), None),
        ({"retry_on": (OSError,)}, OSError(), "retry"),
        ({"retry_on": (OSError,)}, TimeoutError(), "retry"),
        ({"retry_on": (OSError,)}, ValueError(), "bury ValueError"),
        ({"retry_on": (OSError,), "bury_on": (ValueError,)}, KeyError(), None),
        ({"retry_on": (UnicodeError,), "bury_on": (ValueError,)}, UnicodeError(), "retry"),
        (
            {"retry_on": (ValueError,), "bury_on": (UnicodeError,)},
            UnicodeError(),
            "bury UnicodeError",
        ),
        ({"retry_on": (ValueError,), "bury_on": (ValueError,)}, ValueError(), "bury ValueError"),
        ({"done_on": (KeyError,)}, KeyError(), "done"),
        ({"done_on": (LookupError,), "bury_on": (KeyError,)}, KeyError(), "bury KeyError"),
        ({"done_on": (KeyError,), "bury_on": (KeyError,)}, KeyError(), "done"),
        ({"done_on": (KeyError,), "retry_on": (OSError,)}, KeyError(), "done"),
        ({"done_on": is_teapot, "bury_on": (ValueError,)}, ValueError("a teapot"), "done"),
        (
            {"done_on": is_teapot, "bury_on": (ValueError,)},
            ValueError("a kettle"),
            "bury ValueError",
        ),
        ({"retry_on": (is_teapot,)}, ValueError("a teapot"), "retry"),
        ({"retry_on": (OSError,)}, BUSY, None),
        ({"bury_on": (Exception,)}, BUSY, None),
        ({"done_on": (Exception,)}, BUSY, None),
        ({"done_on": (OnefoldError,)}, OutcomeUnknown(key="k"), None),
        ({"retry_on": (OSError,)}, OutcomeUnknown(key="k"), None),
        ({"done_on": (Exception,)}, LeaseLost("a lock", fence=1), None),
        ({"done_on": (Busy,)}, BUSY, "done"),
        ({"retry_on": (Busy,)}, BUSY, "retry"),
    ],
)
def test_the_nearest_rule_decides(
    rules: dict[str, Any], error: BaseException, expected: str | None
) -> None:
    none: dict[str, Any] = {"retry_on": (), "bury_on": (), "done_on": ()}

    assert outcome(error_rules(**{**none, **rules}), error) == expected
