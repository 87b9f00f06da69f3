"""What an operator does with API keys from a shell."""

import re

import pytest

from onefold import Admission, Onefold
from tests.cli.conftest import Operate, read


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
