"""The reference lists everything that exists, and nothing else; all links work."""

import ast
import inspect
import re
import sqlite3
import textwrap
import tomllib
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.main import get_command

import onefold
from onefold import (
    Enqueuer,
    NewJob,
    Onefold,
    Tenant,
    Within,
    Worker,
    claims,
    errors,
    events,
    testing,
)
from onefold.app.api_keys import ApiKeys
from onefold.app.dead import DeadJobs
from onefold.app.deliveries import Deliveries
from onefold.app.keys import Keys
from onefold.app.queues import Queues
from onefold.app.schedules import ScheduleOptions, Schedules
from onefold.cli.commands import app
from onefold.cli.config import KEYS
from onefold.effects.claims import ClaimOptions
from onefold.effects.once import OnceOptions
from onefold.jobs.enqueue_options import CallOptions
from onefold.jobs.job_function import DeclareOptions
from onefold.model.lifecycle import POISON_DELIVERIES, mermaid
from onefold.push.push_worker import PushSettings
from onefold.server import events as server_events
from onefold.worker.settings import WorkerOptions, worker_settings
from tests.docs.pages import DOCS, PAGES, ROOT, blocks, name_of, prose, script

NOUNS = [ApiKeys, DeadJobs, Deliveries, Keys, Queues, Schedules]
ERRORS = sorted(
    (
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.OnefoldError)
    ),
    key=lambda kind: kind.__name__,
)
SETTINGS = {
    *list(inspect.signature(Onefold).parameters),
    *(field.name for field in msgspec.structs.fields(NewJob)),
    *CallOptions.__annotations__,
    *ClaimOptions.__annotations__,
    *OnceOptions.__annotations__,
    *DeclareOptions.__annotations__,
    *WorkerOptions.__annotations__,
    *KEYS["worker"],
    *ScheduleOptions.__optional_keys__,
}


def words_in_code(page: Path) -> set[str]:
    """Every identifier in backticks on a page."""
    spans = re.findall(r"`([^`\n]+)`", prose(page))
    return {word for span in spans for word in re.findall(r"\w+", span)}


@pytest.mark.parametrize(
    "module", [onefold, claims, events, testing], ids=lambda module: module.__name__
)
def test_every_public_name_is_in_the_reference(module: object) -> None:
    missing = set(getattr(module, "__all__", ())) - words_in_code(DOCS / "reference/api.md")

    assert not missing


@pytest.mark.parametrize("kind", [Onefold, Tenant, Within, *NOUNS, Enqueuer, Worker])
def test_every_public_method_is_in_the_reference(kind: type) -> None:
    methods = {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}
    twins = {f"a{name}" for name in methods}

    assert not methods - twins - words_in_code(DOCS / "reference/api.md")


@pytest.mark.parametrize("kind", NOUNS, ids=lambda kind: kind.__name__)
def test_the_parameters_in_the_reference_are_those_of_the_code(kind: type) -> None:
    noun = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower().removesuffix("_jobs")
    calls = re.findall(rf"`{noun}\.(\w+)\(([^`]*)\)`", (DOCS / "reference/api.md").read_text())
    wrong: list[str] = []
    for name, shown in calls:
        parameters = inspect.signature(getattr(kind, name)).parameters
        flat = re.sub(r"\([^)]*\)|\*\*\w+", "", shown)
        named = {part.partition("=")[0].strip() for part in flat.split(",")} - {"", "*", "…"}
        takes_more = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
        if not takes_more and not named <= set(parameters):
            wrong.append(f"{noun}.{name}: {sorted(named - set(parameters))}")

    assert calls
    assert wrong == []


def test_the_settings_in_the_reference_are_those_of_the_code() -> None:
    page = (DOCS / "reference/settings.md").read_text()

    assert not SETTINGS - set(re.findall(r"^\| `(\w+)`", page, re.MULTILINE))
    assert not set(re.findall(r"^\| `([a-z_]+)` \|", page, re.MULTILINE)) - SETTINGS


def test_the_reference_shows_how_an_onefold_is_made() -> None:
    page = (DOCS / "reference/api.md").read_text()
    (shown,) = re.findall(r"^`Onefold\((.+)\)`:", page, re.MULTILINE)
    names = [part.partition("=")[0] for part in shown.split(", ") if part != "*"]

    assert names == list(inspect.signature(Onefold).parameters)


def test_the_versions_that_are_called_tested_are_those_of_the_lock() -> None:
    page = (DOCS / "how-to/enqueue-in-your-transaction.md").read_text()
    (said,) = re.findall(r"^Tested with (.+)\.$", page, re.MULTILINE)
    locked = {
        (package["name"].removesuffix("-binary"), ".".join(package["version"].split(".")[:2]))
        for package in tomllib.loads((ROOT / "uv.lock").read_text())["package"]
        if "version" in package
    }

    assert set(re.findall(r"(\w+) (\d+\.\d+)", said.lower())) <= locked


def test_numbers_are_the_documented_ones() -> None:
    row = f"| vanished workers in a row that bury a job as poison | {POISON_DELIVERIES} |"

    assert row in (DOCS / "reference/settings.md").read_text()

    settings = worker_settings({})

    assert settings.lease == PushSettings().lease == timedelta(seconds=30)
    assert settings.heartbeat == timedelta(seconds=7.5)
    assert "| `lease` | 30 s | how long a worker" in (DOCS / "reference/settings.md").read_text()


def test_every_table_column_and_index_is_in_the_reference(sqlite_url: str, tmp_path: Path) -> None:
    with Onefold(sqlite_url) as application:
        application.migrate()
    with closing(sqlite3.connect(tmp_path / "onefold.db")) as connection:
        stored = connection.execute(
            "select type, name from sqlite_master where name like 'onefold_%'"
        ).fetchall()
        names = {name.removeprefix("onefold_") for kind, name in stored if kind == "index"}
        for kind, table in stored:
            if kind == "table":
                rows = connection.execute(f"pragma table_info({table})").fetchall()
                names |= {row[1] for row in rows}

    assert not names - words_in_code(DOCS / "reference/sql-schema.md")


def test_the_state_diagram_is_the_lifecycle() -> None:
    assert blocks(DOCS / "explanation/states.md", "mermaid") == [mermaid() + "\n"]


def test_the_page_of_events_is_the_code() -> None:
    page = (DOCS / "reference/events.md").read_text()

    assert page == script("reference").with_events(page), "run `make reference`"


def test_every_event_over_http_is_documented() -> None:
    sent = {
        value
        for name, value in vars(server_events).items()
        if name.isupper() and isinstance(value, str) and "." in value
    }
    page = (DOCS / "how-to/events-over-http.md").read_text()

    assert sent
    assert [name for name in sorted(sent) if f"`{name}`" not in page] == []


def attributes_of(kind: type) -> list[str]:
    """The names of the evidence that an error passes to the root of the tree."""
    if kind is errors.OnefoldError:
        return ["evidence"]
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "super().__init__"
    ]
    if calls:
        return [keyword.arg for keyword in calls[0].keywords if keyword.arg]
    inherited = kind.__mro__[1]
    return [] if inherited is errors.OnefoldError else attributes_of(inherited)


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_is_in_the_reference_with_its_status_and_attributes(
    kind: type[errors.OnefoldError],
) -> None:
    page = (DOCS / "reference/errors.md").read_text()
    start = re.escape(f"| `{kind.__name__}` | {kind.status} |")
    (row,) = re.findall(rf"^{start}.*\|(.*)\|$", page, re.MULTILINE)

    assert re.findall(r"`(\w+)`", row) == attributes_of(kind)


def commands(group: Any, *path: str) -> Iterator[str]:
    """Every command, with its subcommands."""
    yield " ".join(("onefold", *path))
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, *path, name)


def test_every_command_is_in_the_reference() -> None:
    page = (DOCS / "reference/command-line.md").read_text()

    for command in commands(get_command(app)):
        assert f"$ {command} --help" in page


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=name_of
)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page

        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    ahead = [ROOT / "README.md"]
    while ahead:
        page = ahead.pop().resolve()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        ahead += [page.parent / link for link in re.findall(r"\]\(([^)\s#:]+)", prose(page))]

    assert not {page.resolve() for page in PAGES} - seen


def test_pages_speak_of_nothing_outside_the_repository() -> None:
    outside = "../" + "shared"

    assert not [name_of(page) for page in PAGES if outside in page.read_text()]
