"""API keys: create one, see its text once, revoke it."""

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from onefold import Onefold
from onefold.web.forms.form_keys import FIELD
from tests.dashboard.conftest import LogIn
from tests.dashboard.seed import HOSTILE, in_thread
from tests.fixtures.colours import Dialect

BOTH: list[Dialect] = ["sqlite", "postgres"]


def create(page: Page, url: str, **fields: str) -> None:
    """Fill in the form of a new key."""
    page.goto(f"{url}/api-keys")
    if not page.get_by_role("button", name="Create", exact=True).is_visible():
        page.get_by_text("Create a key").click()
    scope = fields.pop("scope", "read")
    page.locator(f'input[name="scope"][value="{scope}"]').check()
    for name, value in fields.items():
        page.locator(f'main input[name="{name}"]').fill(value)


@pytest.mark.parametrize("dialect", BOTH)
def test_a_double_click_creates_one_key_and_shows_its_text_once(
    onefold: Onefold, url: str, page: Page, log_in: LogIn
) -> None:
    own = log_in()
    create(page, url, scope="publish", name="Web shop", tenant="acme", rate="100/s")
    page.get_by_label("Expires after").select_option("30 days")

    page.get_by_role("button", name="Create", exact=True).dblclick()

    text = page.locator("#secret").inner_text()
    (made,) = [key for key in onefold.api_keys.find() if key.id != own]
    assert in_thread(lambda: onefold.api_keys.check(text)).key == made
    assert (made.name, made.tenant, made.scopes) == ("Web shop", "acme", ("publish",))
    assert str(made.rate) == "100/s"
    assert made.expires_at is not None
    page.get_by_role("link", name="I have copied it").click()
    expect(page.locator(f'[data-key="{made.id}"]')).to_contain_text("Web shop")
    secret = text.rpartition("_")[2]
    assert secret not in page.content()
    stored = onefold.keys.find(surface="form", results=True)
    assert stored.keys
    assert secret not in repr(stored)


def test_a_repeat_of_the_form_creates_no_key_and_does_not_show_the_text(
    onefold: Onefold, url: str, browser: Browser
) -> None:
    # Without scripts, a double click is sent twice.
    plain = browser.new_context(java_script_enabled=False)
    page = plain.new_page()
    admin = in_thread(lambda: onefold.api_keys.create(scopes=["admin"]))
    page.goto(f"{url}/login")
    page.get_by_label("API key").fill(admin.text)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(lambda found: "/login" not in found)
    create(page, url, name="Twice")
    form: dict[str, str | float | bool] = {
        name: page.locator(f'.maker [name="{name}"]').input_value()
        for name in (FIELD, "back", "name", "tenant", "rate", "expires")
    }
    form["scope"] = "read"
    headers = {"Origin": url}

    first = page.request.post(f"{url}/api-keys", form=form, headers=headers)
    second = page.request.post(f"{url}/api-keys", form=form, headers=headers)

    assert 'id="secret"' in first.text()
    assert 'id="secret"' not in second.text()
    assert "its text is not stored" in second.text()
    assert [key.name for key in onefold.api_keys.find()].count("Twice") == 1
    plain.close()


def test_the_first_key_is_created_without_a_login_and_asks_for_one_from_then_on(
    onefold: Onefold, url: str, page: Page
) -> None:
    create(page, url, scope="admin", name="Ada")
    page.get_by_role("button", name="Create", exact=True).click()
    text = page.locator("#secret").inner_text()

    page.get_by_role("link", name="I have copied it").click()
    page.wait_for_url(re.compile("/login"))
    page.get_by_label("API key").fill(text)
    page.get_by_role("button", name="Log in").click()

    page.wait_for_url(f"{url}/api-keys")
    expect(page.locator("tbody tr")).to_have_count(1)


@pytest.mark.parametrize("dialect", BOTH)
def test_a_key_is_revoked_once_after_a_confirmation(
    onefold: Onefold, url: str, page: Page, log_in: LogIn
) -> None:
    log_in()
    other = in_thread(lambda: onefold.api_keys.create(scopes=["work"], name="Worker 7"))
    page.goto(f"{url}/api-keys")
    row = page.locator(f'[data-key="{other.key.id}"]')

    row.get_by_role("button", name="Revoke").click()
    expect(page.get_by_role("dialog")).to_contain_text("Revoke Worker 7?")
    page.get_by_role("dialog").get_by_role("button", name="Continue").dblclick()

    expect(page.locator(".toast")).to_contain_text("The key is revoked.")
    expect(row.locator(".badge")).to_have_text("revoked")
    expect(row.get_by_role("button")).to_have_count(0)
    assert in_thread(lambda: onefold.api_keys.check(other.text)).key is None


@pytest.mark.parametrize(
    "wrong",
    [("rate", "often"), ("tenant", "No Tenant")],
)
def test_bad_input_creates_nothing(
    onefold: Onefold, url: str, page: Page, log_in: LogIn, wrong: tuple[str, str]
) -> None:
    field, value = wrong
    log_in()
    create(page, url, **{field: value})

    page.get_by_role("button", name="Create", exact=True).click()

    expect(page.locator(".toast.failed")).to_contain_text(field)
    assert len(onefold.api_keys.find()) == 1


def test_a_key_without_a_scope_is_not_created(
    onefold: Onefold, url: str, page: Page, log_in: LogIn
) -> None:
    log_in()
    create(page, url)
    page.locator('input[value="read"]').uncheck()

    page.get_by_role("button", name="Create", exact=True).click()

    expect(page.locator(".toast.failed")).to_contain_text("choose one or more")
    assert len(onefold.api_keys.find()) == 1


def test_a_tenant_sees_creates_and_revokes_its_own_keys_only(
    onefold: Onefold, url: str, page: Page, log_in: LogIn
) -> None:
    other = in_thread(lambda: onefold.api_keys.create("other", scopes=["admin"], name="theirs"))
    own = log_in("admin", "acme")
    create(page, url, name="ours")
    page.get_by_role("button", name="Create", exact=True).click()
    page.get_by_role("link", name="I have copied it").click()

    expect(page.locator("tbody tr")).to_have_count(2)
    assert {key.tenant for key in onefold.api_keys.find() if key.name == "ours"} == {"acme"}
    field = page.locator(f'[data-key="{own}"] input[name="id"]')
    field.evaluate("(input, id) => { input.value = id; }", other.key.id)
    page.locator(f'[data-key="{own}"]').get_by_role("button", name="Revoke").click()
    page.get_by_role("dialog").get_by_role("button", name="Continue").click()
    expect(page.locator(".toast.failed")).to_contain_text("not the id of an API key of yours")
    assert in_thread(lambda: onefold.api_keys.check(other.text)).key is not None


def test_a_visitor_who_may_only_read_sees_no_action(url: str, page: Page, log_in: LogIn) -> None:
    log_in("read")
    page.goto(f"{url}/api-keys")

    expect(page.locator("tbody tr")).to_have_count(1)
    assert page.locator("main form").count() == 0


def test_the_name_of_a_key_is_never_html(
    onefold: Onefold, url: str, page: Page, log_in: LogIn
) -> None:
    in_thread(lambda: onefold.api_keys.create(scopes=["read"], name=HOSTILE))
    log_in()
    page.goto(f"{url}/api-keys")

    assert page.locator("main img").count() == 0
    assert HOSTILE in page.locator("tbody").inner_text()
