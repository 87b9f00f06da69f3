import inspect
from collections.abc import Callable
from pathlib import Path

import pytest

from onefold import InvalidInput
from onefold.cli.config import KEYS, read_configuration
from onefold.cli.serve import serve
from onefold.cli.worker import worker


def write(folder: Path, text: str) -> Path:
    path = folder / "pyproject.toml"
    path.write_text(text)
    return path


def test_the_file_is_the_nearest_that_speaks_of_onefold(tmp_path: Path) -> None:
    folder = tmp_path / "service" / "source"
    folder.mkdir(parents=True)
    write(folder.parent, "[project]\nname = 'service'\n")
    path = write(tmp_path, "[tool.onefold.worker]\nconcurrency = 3\n")

    assert read_configuration(folder) == (path, {"concurrency": 3})


def test_values_are_told_as_flags_would_be(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        [tool.onefold.worker]
        app = "shop:onefold"
        queues = ["email", "default:5"]
        lease = 30
        poll = 0.5
        grace = "10s"
        chores = false
        log-format = "json"
        """,
    )

    assert read_configuration(tmp_path).settings == {
        "app": "shop:onefold",
        "queues": "email,default:5",
        "lease": 30,
        "poll": "0.5",
        "grace": "10s",
        "chores": False,
        "log_format": "json",
    }


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[tool.onefold.worker]\nconcurency = 5", "tool.onefold.worker.concurency"),
        ("[tool.onefold.workers]\nconcurrency = 5", "tool.onefold.workers"),
        ("[tool.onefold.worker]\nconcurrency = '5'", "tool.onefold.worker.concurrency"),
        ("[tool.onefold.worker]\nconcurrency = true", "tool.onefold.worker.concurrency"),
        ("[tool.onefold.worker]\nqueues = [5]", "tool.onefold.worker.queues"),
        ("[tool.onefold]\nworker = 5", "tool.onefold.worker"),
        ("[tool]\nonefold = 5", "tool.onefold"),
        ("[tool.onefold.worker", "TOML"),
    ],
)
def test_a_slip_is_refused_with_the_names_of_key_and_file(
    text: str, named: str, tmp_path: Path
) -> None:
    path = write(tmp_path, text)

    with pytest.raises(InvalidInput) as caught:
        read_configuration(tmp_path)

    assert named in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(("name", "command"), [("worker", worker), ("serve", serve)])
def test_every_flag_of_a_worker_and_of_a_server_is_a_key(
    name: str, command: Callable[..., None]
) -> None:
    flags = set(inspect.signature(command).parameters) - {"context", "as_process"}

    assert flags == set(KEYS[name])


def test_a_server_may_have_a_file_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, "[tool.onefold.serve]\nport = 1")
    path = tmp_path / "onefold.toml"
    path.write_text('[serve]\nport = 8080\npush-allow = ["10.0.0.0/8", "127.0.0.1"]')

    said = {"port": 8080, "push_allow": "10.0.0.0/8,127.0.0.1"}
    assert read_configuration(tmp_path, "serve") == (path, said)
    path.write_text("[serve]\nprot = 8080")
    with pytest.raises(InvalidInput, match=r"serve\.prot in .*onefold\.toml"):
        read_configuration(tmp_path, "serve")
