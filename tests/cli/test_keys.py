"""What an operator does with keys from a shell."""

import json
import shlex

import pytest

from onefold import Onefold
from onefold.claims import Replay, Won
from onefold.web.http import HttpResponse
from onefold.web.idempotency.stored_response import from_stored
from tests.cli.conftest import Operate, read
from tests.fixtures.request_steps import RequestSteps


def claim(onefold: Onefold, key: str, surface: str = "http") -> Won:
    answer = onefold.claim("alice", key, surface=surface)
    assert isinstance(answer, Won)
    return answer


def test_keys_are_listed_without_what_is_stored(operate: Operate, onefold: Onefold) -> None:
    onefold.keys.settle(claim(onefold, "k-1").claim, {"secret": 1})
    claim(onefold, "k-2")
    claim(onefold, "k-3", surface="form")

    text = operate("keys", "list", "--surface", "http", "--scope", "alice")
    found = read(operate("keys", "list", "--limit", "2", "--json"))
    rest = read(operate("keys", "list", "--after", found["next"], "--json"))
    more = operate("keys", "list", "--limit", "1")
    none = operate("keys", "list", "--state", "unknown")

    assert "k-1" in text.stdout
    assert "secret" not in text.stdout + json.dumps(found)
    keys = [(key["key"], key["state"]) for key in (*found["keys"], *rest["keys"])]
    assert keys == [("k-3", "held"), ("k-1", "settled"), ("k-2", "held")]
    assert 'There are more: --after \'["form", "alice", "k-3"]\'' in more.stdout
    assert none.stdout == "No keys found.\n"


def test_no_key_says_anything_to_a_terminal_or_a_shell(operate: Operate, onefold: Onefold) -> None:
    key = "'; \x1b]0;title\x07 \x9b31m [/bold]"
    claim(onefold, key)
    claim(onefold, "k-2")

    listed = operate("keys", "list", "--limit", "1").stdout
    shown = operate("keys", "show", "http", "alice", key).stdout

    for text in (listed, shown):
        assert "'; \\x1b]0;title\\x07 \\x9b31m [/bold]" in text
        assert "\x1b" not in text
    assert json.loads(shlex.split(listed.splitlines()[-1])[-1]) == ["http", "alice", key]


def test_a_key_is_shown_with_what_is_stored(operate: Operate, onefold: Onefold) -> None:
    onefold.keys.settle(claim(onefold, "k-1").claim, {"answer": 42})

    text = operate("keys", "show", "http", "alice", "k-1")
    shown = read(operate("keys", "show", "http", "alice", "k-1", "--json"))
    none = operate("keys", "show", "http", "bob", "k-1")

    assert '{"answer": 42}' in text.stdout
    assert "lease until" not in text.stdout
    assert (shown["state"], shown["result"]) == ("settled", {"answer": 42})
    assert none.stdout == "The key does not exist.\n"


def test_a_key_is_released(operate: Operate, onefold: Onefold) -> None:
    claim(onefold, "k-1")

    assert operate("keys", "release", "http", "alice", "k-1").stdout == "Released k-1.\n"
    again = operate("keys", "release", "http", "alice", "k-1")

    assert again.stdout == "The key does not exist, or it is free.\n"
    claim(onefold, "k-1")


def test_h145_a_request_is_settled_with_an_answer(operate: Operate, onefold: Onefold) -> None:
    claim(onefold, "k-1")

    done = operate(
        "keys", "settle", "http", "alice", "k-1", "--status", "201", "--body", '{"id":7}'
    )

    assert done.stdout == "Settled k-1.\n"
    answer = onefold.claim("alice", "k-1", surface="http")
    assert isinstance(answer, Replay)
    stored = from_stored(answer.result)
    assert isinstance(stored, HttpResponse)
    assert (stored.status, stored.body) == (201, b'{"id":7}')


def test_any_other_key_is_settled_with_json(operate: Operate, onefold: Onefold) -> None:
    claim(onefold, "k-1", surface="once")

    done = operate("keys", "settle", "once", "alice", "k-1", "--result", '{"rows": 7}')
    none = operate("keys", "settle", "once", "alice", "k-2")

    assert done.stdout == "Settled k-1.\n"
    assert none.stdout == "The key does not exist, or it is free.\n"
    answer = onefold.claim("alice", "k-1")
    assert isinstance(answer, Replay)
    assert answer.result == {"rows": 7}


def test_a_word_that_is_not_clear_is_refused(operate: Operate) -> None:
    http, once = ("keys", "settle", "http", "alice", "k"), ("keys", "settle", "once", "alice", "k")

    for arguments, said in [
        ((*http,), "status"),
        ((*http, "--status", "200", "--result", "1"), "status"),
        ((*once, "--status", "200"), "http and form"),
        ((*once, "--result", "{"), "must be JSON"),
        ((*once, "--result", "[" * 10_000), "must be JSON"),
        ((*http, "--status", "200", "--body", "x", "--content-type", "a\nb"), "content_type"),
        (("keys", "settle", "step", "a", "b"), "run.step"),
    ]:
        refused = operate(*arguments)
        assert refused.returncode != 0
        assert said in refused.stderr


def test_keys_are_swept(operate: Operate) -> None:
    assert operate("keys", "sweep").stdout == "Deleted 0 expired keys.\n"


def test_a_step_of_a_request_is_shown_settled_and_released(
    operate: Operate, onefold: Onefold
) -> None:
    key = ("http", "alice", "k-1")
    steps = RequestSteps(onefold.context, claim(onefold, "k-1").claim)
    steps.step("look", lambda: 1)
    for name in ("charge", "mail"):
        with pytest.raises(KeyboardInterrupt):
            steps.using(unsafe=True).step(name, interrupted)

    shown = read(operate("keys", "show", *key, "--json"))
    text = operate("keys", "show", *key)
    settled = operate("keys", "settle", *key, "--step", "charge", "--result", '{"id": 7}')
    released = operate("keys", "release", *key, "--step", "mail")
    again = operate("keys", "settle", *key, "--step", "charge")
    none = operate("keys", "release", "http", "bob", "k-1", "--step", "mail")
    now = read(operate("keys", "show", *key, "--json"))

    assert shown["steps"] == {"charge": "begun", "look": "over", "mail": "begun"}
    assert '"charge": "begun"' in text.stdout
    assert (settled.stdout, released.stdout) == ("Settled charge.\n", "Released mail.\n")
    assert again.stdout == none.stdout == "The step does not exist, or it has ended.\n"
    assert now["steps"] == {"charge": "over", "look": "over"}


def interrupted() -> None:
    raise KeyboardInterrupt
