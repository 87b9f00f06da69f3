"""`onefold top`, driven by its keys on a screen of 80 columns and 24 lines."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from textual.pilot import Pilot
from textual.widgets import Input, Static

from onefold import Onefold
from onefold.cli.top_screen import Rows, Top
from tests.cli.conftest import Operate
from tests.cli.test_operators import MINUTE, bury, states
from tests.cli.test_status import on_terminal
from tests.fixtures.place import Place

DAY = timedelta(days=1)
"""No refresh by time: the test refreshes."""
NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)

SCREEN = """\
1 job due, 0 running, 0 workers; 15 min: 0 done; 24 h: 0 done, 1 duplicate
suppressed

 queue    depth  oldest  running  retrying  scheduled  dead  state
 default  0              0        0         0          1     open
 mail     1      1h 1m   0        1         1          0     open



 worker  host  pid  running  queues  state






 job                                   kind    state     error
 {failing}  email   retrying  TimeoutError: slow
 {dead}  digest  dead      ValueError: digest is [




 p Pause  r Replay  i Inspect  / Search  q Quit
"""


def fill(onefold: Onefold) -> tuple[str, str]:
    """A dead letter in `default`; a retrying and a ready job in `mail`."""
    (dead,) = bury(onefold, "digest")
    failing = onefold.enqueue("email", queue="mail", tags=["vip"]).id
    taken = onefold.deliveries.take(["mail"], worker="w", lease=MINUTE)
    onefold.deliveries.retry(taken, error=TimeoutError("slow"), after=DAY)
    for _ in range(2):
        onefold.enqueue("email", {"to": "[bold]42"}, queue="mail", unique_key="welcome:42")
    return dead, failing


@asynccontextmanager
async def opened(onefold: Onefold) -> AsyncGenerator[Pilot[None]]:
    """The screen, and who presses its keys."""
    async with Top(onefold, onefold, DAY).run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        yield pilot


async def settled(pilot: Pilot[None]) -> None:
    """Until all threads have ended, and the screen shows their results."""
    threads: Any = pilot.app.workers
    for _ in range(3):
        await pilot.pause()
        await threads.wait_for_complete()
    await pilot.pause()


async def press(pilot: Pilot[None], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await settled(pilot)


async def shows(pilot: Pilot[None], *texts: str) -> None:
    """The screen shows the texts, after as many looks as a busy machine needs.

    Textual counts a process that gets no processor as idle, so one pause is not enough.
    """
    for _ in range(200):
        if all(text in screen(pilot) for text in texts):
            return
        await pilot.pause()
    for text in texts:
        assert text in screen(pilot)


def screen(pilot: Pilot[None]) -> str:
    """The characters on the screen."""
    strips = pilot.app.screen._compositor.render_strips()
    lines = ("".join(segment.text for segment in strip) for strip in strips)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def message(pilot: Pilot[None]) -> str:
    return str(pilot.app.screen_stack[0].query_one("#message", Static).render())


async def test_the_screen_shows_everything_at_80_by_24(place: Place) -> None:
    now = [NOON]
    with place.open(clock=lambda: now[0]) as onefold:
        dead, failing = fill(onefold)
        now[0] += timedelta(minutes=61)
        async with opened(onefold) as pilot:
            await shows(pilot, SCREEN.format(dead=dead, failing=failing))


async def test_a_terminal_receives_no_codes_of_an_error(onefold: Onefold) -> None:
    onefold.enqueue("email", max_attempts=1)
    taken = onefold.deliveries.take(worker="w", lease=MINUTE)
    onefold.deliveries.retry(taken, error=ValueError("\x1b[2J is hidden"))
    async with opened(onefold) as pilot:
        await press(pilot, "tab", "tab")
        error = pilot.app.query_one("#errors", Rows).get_row_at(0)[-1]
        assert str(error) == "ValueError: \\x1b[2J is hidden"
        await press(pilot, "i")
        await shows(pilot, "\\x1b[2J is hidden")


def test_without_a_terminal_it_names_the_command_to_use(operate: Operate, onefold: Onefold) -> None:
    piped, often = operate("top"), operate("top", "--every", "0s")

    assert (piped.returncode, often.returncode) == (2, 2)
    assert "onefold status --json" in piped.stderr
    assert "at least 100ms" in often.stderr


async def test_a_queue_is_paused_and_its_dead_letters_are_replayed_after_a_question(
    onefold: Onefold, place: Place
) -> None:
    dead, _ = fill(onefold)
    async with opened(onefold) as pilot:
        await press(pilot, "down", "p")
        assert message(pilot) == "The queue mail is paused."
        assert [queue.name for queue in onefold.queues.find() if queue.paused] == ["mail"]
        await shows(pilot, "mail     1", "paused")
        await press(pilot, "p")
        assert message(pilot) == "The queue mail is resumed."

    async with opened(onefold) as pilot:
        await press(pilot, "r")
        await shows(pilot, "Replay all dead letters of default?")
        await press(pilot, "n")
        assert states(place, dead) == ["dead"]
        await press(pilot, "r", "y")
        assert message(pilot) == "Replayed 1."
    assert states(place, dead) == ["ready"]


async def test_a_job_is_inspected_and_run_now(onefold: Onefold) -> None:
    _, failing = fill(onefold)
    async with opened(onefold) as pilot:
        await press(pilot, "tab", "tab", "i")
        await shows(pilot, failing, "TimeoutError: slow")
        await press(pilot, "escape", "r")
        assert message(pilot) == f"{failing} is due now."
        await press(pilot, "r")
        assert message(pilot) == f"{failing} is due or running already."


async def search(pilot: Pilot[None], text: str) -> None:
    await press(pilot, "slash")
    pilot.app.screen.query_one(Input).value = text
    await press(pilot, "enter")


async def test_a_job_is_searched_by_any_property_and_replayed_from_the_list(
    place: Place, onefold: Onefold
) -> None:
    expected = {"email": 2, "mail": 2, "welcome:42": 1, "vip": 1, "*": 0, "nothing": 0}
    dead, _ = fill(onefold)
    async with opened(onefold) as pilot:
        for text, number in expected.items():
            await search(pilot, text)
            await shows(pilot, f"Jobs with {text}: {number}")
            await press(pilot, "escape")
        await search(pilot, dead)
        assert pilot.app.screen.query_one(Rows).chosen == dead
        await press(pilot, "enter")
        await shows(pilot, "digest is [bold]hard[/bold]")
        await press(pilot, "escape", "r")
    assert states(place, dead) == ["ready"]


async def test_a_key_without_a_row_says_what_it_needs(onefold: Onefold) -> None:
    async with opened(onefold) as pilot:
        await press(pilot, "p")
        assert message(pilot) == "Choose a queue to pause."
        await press(pilot, "r")
        assert message(pilot) == "Choose a queue or a job to replay."


async def test_a_failure_to_read_is_shown_and_the_screen_stays(onefold: Onefold) -> None:
    fill(onefold)
    async with opened(onefold) as pilot:
        onefold.close()
        assert isinstance(pilot.app, Top)
        pilot.app.refresh_tables()
        await settled(pilot)
        assert "closed" in message(pilot)
        await shows(pilot, "mail")


def test_the_real_command_runs_on_a_terminal(sqlite_url: str, tmp_path: Path) -> None:
    with Place(sqlite_url).open() as onefold:
        fill(onefold)

    command = ("top", "--database", sqlite_url, "--every", "100ms")

    assert "mail" in on_terminal(80, *command, folder=tmp_path, quit_at="mail")
