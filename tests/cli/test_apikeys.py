"""What an operator does with API keys and with keys from a shell."""

import json
import re
import shlex

import pytest

from onefold import Admission, Onefold
from onefold.claims import Replay, Won
from onefold.web.http import HttpResponse
from onefold.web.idempotency.stored_response import from_stored
from tests.cli.conftest import Operate, read
from tests.fixtures.request_steps import RequestSteps


def test_a_key_is_printed_once_and_counts(operate: Operate, onefold: Onefold) -> None:
    made = operate("apikeys", "create", "--tenant", "acme", "--scope", "publish")
    listed = operate("apikeys", "list")
    key = made.stdout.strip()

    assert re.fullmatch(r"of_[a-z2-7]{16}_[0-9A-Za-z]{43}", key)
    assert "for the tenant acme" in made.stderr
    assert key not in made.stderr + listed.stdout
    assert key.split("_")[1] in listed.stdout
    assert key.split("_")[2] not in listed.stdout
    (stored,) = onefold.api_keys.find()
    assert onefold.api_keys.check(key) == Admission(stored)
    assert (stored.tenant, stored.scopes) == ("acme", ("publish",))


def test_a_key_may_be_told_all_there_is_to_it(operate: Operate, onefold: Onefold) -> None:
    options = ("--scope", "work", "--scope", "publish", "--name", "web", "--rate", "100/s")

    made = read(operate("apikeys", "create", *options, "--expires", "90d", "--json"))
    (listed,) = read(operate("apikeys", "--json"))

    assert made.pop("key").startswith(f"of_{made['id']}_")
    assert made == listed
    assert (made["tenant"], made["name"], made["rate"]) == ("", "web", "100/s")
    assert made["scopes"] == ["publish", "work"]
    (stored,) = onefold.api_keys.find()
    assert stored.expires_at is not None
    assert (stored.expires_at - stored.created_at).days == 90


def test_keys_are_listed_by_tenant(operate: Operate, onefold: Onefold) -> None:
    one = onefold.api_keys.create("acme", scopes=["publish"], name="[bold]\x1b")
    onefold.api_keys.create("other", scopes=["admin"])

    (found,) = read(operate("apikeys", "list", "--tenant", "acme", "--json"))
    shown = operate("apikeys", "list", "--tenant", "acme").stdout

    assert found["id"] == one.key.id
    assert "[bold]\\x1b" in shown
    none = operate("apikeys", "list", "--tenant", "none").stdout
    assert none == "There are no API keys. Create one: onefold apikeys create --scope admin\n"

    assert operate("keys", "sweep").stdout == "Deleted 0 expired keys.\n"


def test_a_key_is_revoked_by_its_id_or_by_itself(operate: Operate, onefold: Onefold) -> None:
    one, two = (onefold.api_keys.create(scopes=["admin"]) for _ in range(2))

    by_id = operate("apikeys", "revoke", one.key.id)
    again = operate("apikeys", "revoke", one.key.id)
    by_text = read(operate("apikeys", "revoke", two.text, "--json"))

    assert by_id.stdout == "The key is revoked: requests with it are rejected.\n"
    assert again.stdout == "The key does not exist, or it is already revoked.\n"
    assert by_text == {"revoked": True}
    assert onefold.api_keys.check(one.text) == onefold.api_keys.check(two.text) == Admission(None)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("create", "--scope", "publish", "--tenant", "No Slug"), "tenant must be"),
        (("create", "--scope", "publish", "--rate", "often"), "rate must be like"),
        (("create", "--scope", "publish", "--expires", "soon"), "expires must be like"),
        (("create", "--scope", "write"), "must be some of read, publish, work, admin"),
        (("create",), "Missing option '--scope'"),
        (("revoke", "whatever"), "must be the id of an API key"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(
    operate: Operate, arguments: tuple[str, ...], sentence: str
) -> None:
    refused = operate("apikeys", *arguments)

    assert refused.returncode == 2
    assert sentence in refused.stderr


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


def test_a_key_is_released_or_settled_with_json(operate: Operate, onefold: Onefold) -> None:
    claim(onefold, "k-1")

    assert operate("keys", "release", "http", "alice", "k-1").stdout == "Released k-1.\n"
    again = operate("keys", "release", "http", "alice", "k-1")

    assert again.stdout == "The key does not exist, or it is free.\n"
    claim(onefold, "k-1")

    claim(onefold, "k-1", surface="once")

    done = operate("keys", "settle", "once", "alice", "k-1", "--result", '{"rows": 7}')
    none = operate("keys", "settle", "once", "alice", "k-2")

    assert done.stdout == "Settled k-1.\n"
    assert none.stdout == "The key does not exist, or it is free.\n"
    answer = onefold.claim("alice", "k-1")
    assert isinstance(answer, Replay)
    assert answer.result == {"rows": 7}


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
