"""Which database a command works on, where none is named."""

import json
from pathlib import Path

import pytest

from onefold import Onefold
from tests.cli.conftest import Run
from tests.cli.workers import write_app
from tests.fixtures.place import Place


def stored(path: Path, kind: str) -> str:
    """A database with one job of a kind; its URL."""
    url = f"sqlite:///{path}"
    with Onefold(url) as onefold:
        onefold.migrate()
        onefold.enqueue(kind)
    return url


def kinds(run: Run, *arguments: str, **environment: str) -> list[str]:
    done = run("jobs", "--json", *arguments, **environment)
    assert done.returncode == 0, done.stderr
    return [job["kind"] for job in json.loads(done.stdout)["jobs"]]


@pytest.mark.parametrize("command", [("jobs",), ("why", "key"), ("doctor",)])
def test_a_look_at_a_database_that_is_not_there_makes_none(
    onefold_command: Run, tmp_path: Path, command: tuple[str, ...]
) -> None:
    done = onefold_command(*command)

    assert done.returncode == 2
    assert f"The database sqlite:///{tmp_path}/onefold.db does not exist" in done.stderr
    assert "--database" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default(
    onefold_command: Run, tmp_path: Path
) -> None:
    stored(tmp_path / "onefold.db", "default")
    assert kinds(onefold_command) == ["default"]

    write_app(tmp_path, Place(stored(tmp_path / "app.db", "of_app")))
    file = tmp_path / "pyproject.toml"
    file.write_text('[tool.onefold.worker]\napp = "shop:onefold"\n')
    assert kinds(onefold_command) == ["of_app"]

    url = stored(tmp_path / "file.db", "file")
    file.write_text(f'{file.read_text()}[tool.onefold.serve]\ndatabase = "{url}"\n')
    assert kinds(onefold_command) == ["file"]
    assert kinds(onefold_command, ONEFOLD_APP="shop:onefold") == ["of_app"]

    url = stored(tmp_path / "environment.db", "environment")
    assert kinds(onefold_command, ONEFOLD_DATABASE=url) == ["environment"]
    assert kinds(onefold_command, ONEFOLD_DATABASE=url, ONEFOLD_APP="shop:onefold") == [
        "environment"
    ]

    url = stored(tmp_path / "flag.db", "flag")
    assert kinds(onefold_command, "--database", url, ONEFOLD_DATABASE="mysql://x") == ["flag"]
    assert kinds(onefold_command, "--database", url, ONEFOLD_APP="nowhere:app") == ["flag"]
    assert kinds(onefold_command, "--app", "shop:onefold", ONEFOLD_DATABASE=url) == ["of_app"]
    both = onefold_command("jobs", "--database", url, "--app", "shop:onefold")
    assert (both.returncode, "exclude each other" in both.stderr) == (2, True)


def test_the_schema_is_the_servers(
    onefold_command: Run, postgres_place: Place, tmp_path: Path
) -> None:
    with postgres_place.open() as onefold:
        onefold.enqueue("email")
    named = {"ONEFOLD_DATABASE": postgres_place.url}
    schema = postgres_place.schema

    assert kinds(onefold_command, **named, ONEFOLD_SERVE_SCHEMA=schema) == ["email"]
    (tmp_path / "onefold.toml").write_text(f"[serve]\nschema = '{schema}'\n")
    assert kinds(onefold_command, **named) == ["email"]


def test_migrate_makes_the_database_that_the_others_look_at(
    onefold_command: Run, tmp_path: Path
) -> None:
    made = onefold_command("migrate")
    assert (made.returncode, kinds(onefold_command)) == (0, []), made.stderr
    assert "onefold.db" in made.stdout

    write_app(tmp_path, Place(f"sqlite:///{tmp_path}/app.db"))
    of_app = onefold_command("migrate", ONEFOLD_APP="shop:onefold")
    assert "app.db is now up to date" in of_app.stdout, of_app.stderr
    refused = onefold_command("migrate", "--sql", ONEFOLD_APP="shop:onefold")
    assert refused.returncode == 2
    assert "needs --database" in refused.stderr


def test_a_new_database_may_begin_with_its_first_api_key(
    onefold_command: Run, tmp_path: Path
) -> None:
    made = onefold_command("apikeys", "create", "--scope", "admin")

    assert made.returncode == 0, made.stderr
    assert (tmp_path / "onefold.db").exists()
