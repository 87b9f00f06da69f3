"""Questions before an action: in a dialog, or on a page of their own without scripts."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from onefold import Onefold
from onefold.model.claim import Replay
from tests.dashboard.seed import in_thread
from tests.dashboard.seed_keys import detail, seed_keys
from tests.dashboard.test_dead import bury, states
from tests.fixtures.colours import Store


@pytest.fixture
def plain(browser: Browser) -> Iterator[Page]:
    """A tab without scripts."""
    context = browser.new_context(java_script_enabled=False)
    context.set_default_timeout(20_000)
    yield context.new_page()
    context.close()


def test_without_scripts_a_page_asks_first_and_a_repeated_answer_does_it_once(
    onefold: Onefold, url: str, plain: Page
) -> None:
    made = in_thread(lambda: bury(onefold, 3))
    plain.goto(f"{url}/dead?queue=many")
    for job_id in made[:2]:
        plain.locator(f'[data-key="{job_id}"] input').check()

    plain.get_by_role("button", name="Drop selected").click()
    expect(plain.locator("main")).to_contain_text("This cannot be undone.")
    assert states(onefold, made) == {"dead"}
    with plain.expect_request(f"{url}/dead/drop") as sent:
        plain.get_by_role("button", name="Continue").click()
    expect(plain.locator(".toast")).to_contain_text("2 dead letters dropped.")
    repeated = plain.request.post(
        f"{url}/dead/drop",
        headers={"content-type": "application/x-www-form-urlencoded"},
        data=sent.value.post_data or "",
    )

    # A second drop would say that the letters stayed.
    assert "2 dead letters dropped." in repeated.text()
    assert states(onefold, made[:2]) == {"deleted"}
    assert states(onefold, made[2:]) == {"dead"}


def test_without_scripts_the_question_can_be_refused(
    onefold: Onefold, url: str, plain: Page
) -> None:
    made = in_thread(lambda: bury(onefold, 2))
    plain.goto(f"{url}/dead?queue=many")

    plain.get_by_role("button", name="Drop all that match").click()
    plain.get_by_role("link", name="Keep").click()

    plain.wait_for_url(f"{url}/dead?queue=many")
    assert states(onefold, made) == {"dead"}


def test_without_scripts_the_fields_of_a_form_survive_the_question(
    store: Store, onefold: Onefold, url: str, plain: Page
) -> None:
    seed_keys(store)
    plain.goto(url + detail("once", "charge", "o-1043"))

    plain.get_by_label("Result (JSON)").fill('{\n  "charge": "\\"found\\" <by> hand"\n}')
    plain.get_by_role("button", name="Settle").click()
    expect(plain.locator("main")).to_contain_text("Settle o-1043?")
    plain.get_by_role("button", name="Continue").click()

    expect(plain.locator(".toast")).to_contain_text("The key is settled")
    answer = in_thread(lambda: onefold.claim("charge", "o-1043"))
    assert isinstance(answer, Replay)
    assert answer.result == {"charge": '"found" <by> hand'}


def test_a_refused_dialog_asks_again_the_next_time(onefold: Onefold, url: str, page: Page) -> None:
    (job_id,) = in_thread(lambda: bury(onefold, 1))
    page.goto(f"{url}/dead")

    for answer in ("Keep", "Continue"):
        page.get_by_role("button", name="Drop all").click()
        expect(page.get_by_role("dialog")).to_contain_text("This cannot be undone.")
        assert states(onefold, [job_id]) == {"dead"}
        page.get_by_role("dialog").get_by_role("button", name=answer).click()

    expect(page.locator("#progress")).to_contain_text("1 dead letter dropped")
