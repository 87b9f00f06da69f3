"""API keys: create one, see its text once, revoke it."""

import pytest

from onefold import Onefold
from tests.dashboard.visiting import Visitor


def create(visit: Visitor, *scopes: str, **fields: str) -> None:
    """Send the form of a new key."""
    visit.open("/api-keys")
    visit.press("Create", None, fields, twice=False, scope=list(scopes or ["read"]))


def test_a_key_is_created_and_its_text_is_shown_once(onefold: Onefold, visit: Visitor) -> None:
    own = visit.log_in()
    fields = {"name": "Web shop", "tenant": "acme", "rate": "100/s", "expires": "30 days"}
    create(visit, "publish", **fields)

    text = visit.page.one("#secret").text
    (made,) = [key for key in onefold.api_keys.find() if key.id != own]
    assert onefold.api_keys.check(text).key == made
    assert (made.name, made.tenant, made.scopes) == ("Web shop", "acme", ("publish",))
    assert str(made.rate) == "100/s"
    assert made.expires_at is not None
    visit.click("I have copied it")
    assert "Web shop" in visit.page.row(made.id).text
    secret = text.rpartition("_")[2]
    assert secret not in visit.page.raw
    stored = onefold.keys.find(surface="form", results=True)
    assert stored.keys
    assert secret not in repr(stored)


def test_a_repeat_of_the_form_creates_no_key_and_does_not_show_the_text(
    onefold: Onefold, visit: Visitor
) -> None:
    visit.log_in()
    page = visit.open("/api-keys")
    (button,) = page.buttons("Create")
    _, form = visit.form(button, {"name": "Twice", "scope": ["read"]})

    first, second = (visit.send("POST", "/api-keys", form) for _ in range(2))

    assert b'id="secret"' in first.body
    visit.open(dict(second.headers)["location"])
    assert "its text is not stored" in visit.notice
    assert visit.page.all("#secret") == []
    assert [key.name for key in onefold.api_keys.find()].count("Twice") == 1


def test_the_first_key_is_created_without_a_login_and_asks_for_one_from_then_on(
    visit: Visitor,
) -> None:
    create(visit, "admin", name="Ada")
    text = visit.page.one("#secret").text

    visit.click("I have copied it")
    assert visit.at.startswith("/login?")
    visit.press("Log in", key=text)

    assert visit.at == "/api-keys"
    assert len(visit.page.keys) == 1


def test_a_key_is_revoked_once_after_a_confirmation(onefold: Onefold, visit: Visitor) -> None:
    visit.log_in()
    other = onefold.api_keys.create(scopes=["work"], name="Worker 7")
    visit.open("/api-keys")

    question = visit.confirm("Revoke", within=visit.page.row(other.key.id))

    assert question.startswith("Revoke Worker 7?")
    assert visit.notice == "The key is revoked."
    row = visit.page.row(other.key.id)
    assert row.one(".badge").text == "revoked"
    assert row.all("button") == []
    assert onefold.api_keys.check(other.text).key is None


@pytest.mark.parametrize(
    ("scopes", "fields", "why"),
    [
        (["read"], {"rate": "often"}, "rate"),
        (["read"], {"tenant": "No Tenant"}, "tenant"),
        ([], {}, "choose one or more"),
    ],
)
def test_bad_input_creates_nothing(
    onefold: Onefold, visit: Visitor, scopes: list[str], fields: dict[str, str], why: str
) -> None:
    visit.log_in()
    visit.open("/api-keys")

    visit.press("Create", None, fields, scope=scopes)

    assert visit.notice.startswith("!")
    assert why in visit.notice
    assert len(onefold.api_keys.find()) == 1


def test_a_tenant_sees_creates_and_revokes_its_own_keys_only(
    onefold: Onefold, visit: Visitor
) -> None:
    other = onefold.api_keys.create("other", scopes=["admin"], name="theirs")
    own = visit.log_in("admin", "acme")
    create(visit, name="ours")
    visit.click("I have copied it")

    assert len(visit.page.keys) == 2
    assert {key.tenant for key in onefold.api_keys.find() if key.name == "ours"} == {"acme"}
    visit.confirm("Revoke", within=visit.page.row(own), id=other.key.id)
    assert "not the id of an API key of yours" in visit.notice
    assert onefold.api_keys.check(other.text).key is not None
