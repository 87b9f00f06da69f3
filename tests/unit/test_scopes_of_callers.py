"""Whose a key is: no caller's id can be chosen so that it is taken for another's scope."""

import pytest

from onefold.app.keys import scope_of, stored_scopes
from onefold.web.http import HttpRequest
from onefold.web.idempotency.key import _scope
from onefold.web.idempotency.policy import policy

BY_CALLER = policy({"takeover": "refuse"})
BY_ROUTE = policy({"takeover": "refuse", "scope": "route"})
PAY = HttpRequest(method="POST", path="/pay")


def test_a_callers_id_is_its_scope() -> None:
    assert _scope(BY_CALLER, PAY, "alice") == "alice"
    assert _scope(BY_ROUTE, PAY, "alice") == "alice\nPOST /pay"


def test_nobody_is_called_like_somebody_elses_route() -> None:
    assert _scope(BY_CALLER, PAY, "alice\nPOST /pay") != _scope(BY_ROUTE, PAY, "alice")


def test_nobody_is_called_like_somebody_elses_digest() -> None:
    long = "alice" * 200
    digested = _scope(BY_CALLER, PAY, long)
    assert digested.startswith("digest:")
    assert _scope(BY_CALLER, PAY, digested) != digested


@pytest.mark.parametrize("principal", ["x" * 2000, "a\0b", "ü" * 300, "a\nb", "digest:1"])
def test_every_scope_fits_the_store_and_is_found_by_its_callers_id(principal: str) -> None:
    route = HttpRequest(method="POST", path="/" + "p" * 600)
    for made in (BY_CALLER, BY_ROUTE):
        scope = _scope(made, route, principal)
        assert len(scope.encode()) <= 512
        assert "\0" not in scope
        assert scope.partition("\n")[0] == scope_of(principal)
    assert scope_of(principal) in stored_scopes(principal)
