"""PostgreSQL in bad weather: gone, restarting, refusing, full, slow. A sentence for each."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any, TypeAlias
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from onefold import DatabaseBusy, DatabaseUnavailable, Enqueued, NewJob, Onefold
from onefold.databases.reach import waiting
from tests.faults.callers import Caller, MakeCaller
from tests.faults.servers import PATIENCE, key_held, until, url_as
from tests.fixtures.patience import BRIEF
from tests.fixtures.postgres import PostgresServer

SHORT = timedelta(seconds=1)


@pytest.fixture
def role(observer: psycopg.Connection) -> Iterator[str]:
    """A user without any rights."""
    name = f"weak_{uuid4().hex[:12]}"
    observer.execute(sql.SQL("create role {} login").format(sql.Identifier(name)))
    yield name
    observer.execute(sql.SQL("drop owned by {}").format(sql.Identifier(name)))
    observer.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


At: TypeAlias = Callable[..., Caller]


@pytest.fixture
def at(postgres_url: str, migrated: str, make_caller: MakeCaller) -> At:
    """Callers at the server that all tests share, by a URL with other parts."""

    def at(**parts: str) -> Caller:
        url = url_as(postgres_url, **parts)
        return make_caller(Onefold(url, schema=migrated, busy_timeout=SHORT))

    return at


@pytest.fixture
def patient(postgres_url: str, migrated: str, make_caller: MakeCaller) -> Caller:
    """A caller at that server who waits as long as we wait by default."""
    return make_caller(Onefold(postgres_url, schema=migrated))


class Crowd:
    """Tasks and threads that enqueue until they are told to leave, whatever is raised."""

    SIZE = 20

    def __init__(self, onefold: Onefold) -> None:
        self._onefold = onefold
        self._left = threading.Event()
        self._errors: set[type[Exception]] = set()
        self._counts = {"stored": 0, "failed": 0}
        self._threads = [threading.Thread(target=self._thread) for _ in range(self.SIZE)]
        self._threads.append(threading.Thread(target=lambda: asyncio.run(self._tasks())))
        for thread in self._threads:
            thread.start()

    def wait_for(self, word: str) -> None:
        """Until every caller may have had this answer."""
        wanted = self._counts[word] + 2 * self.SIZE
        until(lambda: self._counts[word] >= wanted)

    def leave(self) -> set[type[Exception]]:
        """All errors there were."""
        self._left.set()
        for thread in self._threads:
            thread.join(PATIENCE)
        return self._errors

    async def _tasks(self) -> None:
        async def call() -> None:
            while not self._left.is_set():
                with self._counting():
                    await self._onefold.aenqueue("mail")
                await asyncio.sleep(0.005)

        await asyncio.gather(*(call() for _ in range(self.SIZE)))

    def _thread(self) -> None:
        while not self._left.wait(0.005):
            with self._counting():
                self._onefold.enqueue("mail")

    @contextmanager
    def _counting(self) -> Generator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the test looks at each
            self._errors.add(type(error))
            self._counts["failed"] += 1
        else:
            self._counts["stored"] += 1


class TestGone:
    def test_a_server_that_is_not_there_is_unavailable_at_once(
        self, make_caller: MakeCaller
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as unused:
            port = unused.getsockname()[1]
        url = f"postgresql://me:hush@127.0.0.1:{port}/app"
        caller = make_caller(Onefold(url, busy_timeout=timedelta(seconds=PATIENCE)))

        started = time.monotonic()
        with pytest.raises(DatabaseUnavailable, match="cannot be reached") as caught:
            caller("enqueue", "mail")

        assert time.monotonic() - started < PATIENCE
        assert f"postgresql://me@127.0.0.1:{port}/app" in str(caught.value)
        assert "hush" not in str(caught.value) + repr(caught.value) + repr(caller.onefold)

    def test_a_socket_that_is_not_there_is_unavailable(self) -> None:
        with pytest.raises(DatabaseUnavailable, match="/nowhere"):
            Onefold("postgresql://me@/app?host=/nowhere").enqueue("mail")

    def test_a_server_that_is_down_is_unavailable_until_it_is_back(
        self, own_postgres: PostgresServer, make_caller: MakeCaller
    ) -> None:
        caller = make_caller(Onefold(own_postgres.url, busy_timeout=SHORT))
        caller("migrate")
        caller("enqueue", "before")

        own_postgres.stop()
        for _ in range(2):
            with pytest.raises(DatabaseUnavailable, match="cannot be reached"):
                caller("enqueue", "during")
        own_postgres.start()

        caller("enqueue", "after")
        assert [job.kind for job in caller("find")] == ["before", "after"]

    @pytest.mark.prove
    def test_a_server_that_comes_and_goes_never_looks_like_a_closed_object(
        self, own_postgres: PostgresServer
    ) -> None:
        """The first call to learn that the server is back replaces the pool the others wait in."""
        with Onefold(own_postgres.url, busy_timeout=SHORT) as onefold:
            onefold.migrate()
            callers = Crowd(onefold)
            for _ in range(2):
                callers.wait_for("stored")
                own_postgres.stop()
                callers.wait_for("failed")
                own_postgres.start()
            callers.wait_for("stored")
            assert callers.leave() <= {DatabaseUnavailable, DatabaseBusy}

    @pytest.mark.prove
    def test_a_server_that_starts_while_we_wait_is_waited_for(
        self, own_postgres: PostgresServer
    ) -> None:
        onefold = Onefold(own_postgres.url, busy_timeout=timedelta(seconds=PATIENCE))
        onefold.migrate()
        onefold.enqueue("before")
        own_postgres.stop()
        answers: list[bool] = []
        waiting = threading.Thread(target=lambda: answers.append(onefold.enqueue("x").inserted))

        waiting.start()
        own_postgres.start()
        waiting.join(PATIENCE)

        assert answers == [True]
        onefold.close()

    def test_a_backend_that_is_ended_in_mid_operation_makes_one_job(
        self,
        postgres_url: str,
        migrated: str,
        observer: psycopg.Connection,
        make_caller: MakeCaller,
    ) -> None:
        name = f"victim_{uuid4().hex[:8]}"
        caller = make_caller(Onefold(url_as(postgres_url, application_name=name), schema=migrated))
        caller("find")
        answers: list[Any] = []
        with key_held(postgres_url, migrated, "k"):
            waiting = threading.Thread(
                target=lambda: answers.append(caller("enqueue", "mail", unique_key="k"))
            )
            waiting.start()
            until(
                lambda: observer.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity"
                    " where application_name = %s and wait_event_type = 'Lock'",
                    [name],
                ).fetchone()
            )
        waiting.join(PATIENCE)

        assert [answer.duplicate for answer in answers] == [False]
        assert len(caller("find")) == 1


class TestRefused:
    @pytest.mark.prove
    def test_a_wrong_password_is_said_without_the_password(
        self, own_postgres: PostgresServer, make_caller: MakeCaller
    ) -> None:
        with psycopg.connect(own_postgres.url, autocommit=True) as connection:
            connection.execute("create role guarded login password 'right'")
            row = connection.execute("show hba_file").fetchone()
            assert row is not None
            with open(row[0], "r+") as rules:  # noqa: PTH123
                kept = rules.read()
                rules.seek(0)
                rules.write(f"local all guarded scram-sha-256\n{kept}")
            connection.execute("select pg_reload_conf()")
        wrong = url_as(own_postgres.url, user="guarded", password="hush")
        right = url_as(own_postgres.url, user="guarded", password="right")
        until(lambda: _refused(wrong))
        caller = make_caller(Onefold(wrong))

        with pytest.raises(DatabaseUnavailable, match="password") as caught:
            caller("enqueue", "mail")

        assert "hush" not in str(caught.value)
        assert "guarded@" in str(caught.value)
        psycopg.connect(right).close()

    @pytest.mark.parametrize(
        ("parts", "sentence"),
        [
            ({"dbname": "no_such_database"}, "Create it first"),
            ({"user": "nobody_of_ours"}, "refused this user"),
            ({"options": "-c default_transaction_read_only=on"}, "read-only"),
        ],
        ids=["database", "user", "standby"],
    )
    def test_what_is_not_possible_is_said(
        self, at: At, parts: dict[str, str], sentence: str
    ) -> None:
        with pytest.raises(DatabaseUnavailable, match=sentence):
            at(**parts)("enqueue", "mail")

    def test_a_user_without_rights_cannot_migrate(
        self, postgres_url: str, postgres_schema: str, role: str
    ) -> None:
        with (
            Onefold(url_as(postgres_url, user=role), schema=postgres_schema) as onefold,
            pytest.raises(DatabaseUnavailable, match="rights"),
        ):
            onefold.migrate()

    def test_rights_that_are_missing_and_a_server_that_fills_up_later_are_said_too(
        self, at: At, role: str, observer: psycopg.Connection
    ) -> None:
        caller = at(user=role)
        with pytest.raises(DatabaseUnavailable, match="Grant it the rights"):
            caller("enqueue", "mail")
        owner = sql.Identifier(observer.info.user)
        observer.execute(sql.SQL("grant {} to {}").format(owner, sql.Identifier(role)))
        caller("enqueue", "mail")
        observer.execute(sql.SQL("alter role {} connection limit 0").format(sql.Identifier(role)))
        observer.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where usename = %s", [role]
        )

        with pytest.raises(DatabaseUnavailable, match="no connection left"):
            caller("enqueue", "mail")
        with waiting(BRIEF.total_seconds()), pytest.raises(DatabaseUnavailable) as caught:
            caller.onefold.enqueue("mail")
        assert "too many connections" in str(caught.value)


class TestSlow:
    @pytest.mark.parametrize("options", ["", "-c statement_timeout=200", "-c lock_timeout=200"])
    def test_a_key_that_somebody_keeps_is_busy(
        self, postgres_url: str, migrated: str, at: At, options: str
    ) -> None:
        caller = at(**({"options": options} if options else {}))

        with key_held(postgres_url, migrated, "k"), pytest.raises(DatabaseBusy) as caught:
            caller("enqueue", "mail", unique_key="k")

        if not options:
            assert caught.value.waited >= SHORT
            assert "Commit or roll it back" in str(caught.value)
        assert caller("enqueue", "mail", unique_key="k").inserted

    def test_a_settle_does_not_wait_without_end_for_a_guard(
        self, postgres_url: str, at: At
    ) -> None:
        caller = at()
        claim = caller("claim", "pay", "k").claim

        with closing(psycopg.connect(postgres_url)) as connection:
            caller.onefold.within(connection).guard(claim)
            with pytest.raises(DatabaseBusy):
                caller("keys.settle", claim, 7)

        caller("keys.settle", claim, 7)
        assert caller("claim", "pay", "k").result == 7


class TestPassedOn:
    def test_an_error_that_is_not_translated_is_not_its_own_cause(
        self, patient: Caller, migrated: str, observer: psycopg.Connection
    ) -> None:
        observer.execute(sql.SQL("drop table {} cascade").format(sql.Identifier(migrated, "job")))

        with pytest.raises(psycopg.errors.UndefinedTable) as caught:
            patient("enqueue", "mail")

        assert caught.value.__cause__ is None

    @pytest.mark.parametrize(
        "sentence",
        [
            'duplicate key value violates unique constraint "job_pkey_102008"',
            "canceling statement due to lock timeout",
            "deadlock detected",
        ],
    )
    def test_what_a_node_of_citus_answers_to_copy_keeps_its_meaning(
        self, patient: Caller, migrated: str, observer: psycopg.Connection, sentence: str
    ) -> None:
        """Citus reports it as XX000. A sequence counts, since what is raised is rolled back."""
        refuse_inserts(observer, migrated, "XX000", sentence, times=1)

        stored = patient("enqueue_many", [NewJob("mail"), NewJob("mail")])

        assert stored.inserted == 2
        assert len(patient("find")) == 2

    def test_a_node_of_citus_that_is_away_is_not_waited_for(
        self,
        postgres_url: str,
        migrated: str,
        observer: psycopg.Connection,
        make_caller: MakeCaller,
    ) -> None:
        """Other shards would wait, too; an error of our own connection is retried for longer."""
        sentence = "connection to the remote node node:5432 failed with the following error: away"
        refuse_inserts(observer, migrated, "08006", sentence)
        patience = timedelta(hours=1)
        caller = make_caller(Onefold(postgres_url, schema=migrated, busy_timeout=patience))

        with pytest.raises(DatabaseUnavailable, match="remote node"):
            caller("enqueue", "mail")


def refuse_inserts(
    observer: psycopg.Connection, schema: str, state: str, sentence: str, *, times: int = 1_000
) -> None:
    """Let inserts of a job fail with an SQLSTATE and a message."""
    table, function, counter = (
        sql.Identifier(schema, name) for name in ("job", "refuse", "refusals")
    )
    observer.execute(sql.SQL("create sequence {}").format(counter))
    text = (
        "create function {}() returns trigger language plpgsql as $$ begin"
        " if nextval({}) <= {} then raise exception using errcode = {}, message = {};"
        " end if; return new; end $$"
    )
    observer.execute(sql.SQL(text).format(function, counter.as_string(), times, state, sentence))
    text = "create trigger refuse before insert on {} execute function {}()"
    observer.execute(sql.SQL(text).format(table, function))


def _refused(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return True
    return False


def test_a_failure_is_shared_by_all_who_waited_for_it() -> None:
    async def ask(url: str) -> list[BaseException | Enqueued]:
        onefold = Onefold(url, busy_timeout=timedelta(seconds=2))
        calls = (onefold.aenqueue("email") for _ in range(5))
        return list(await asyncio.gather(*calls, return_exceptions=True))

    with socket.create_server(("127.0.0.1", 0)) as silent:
        errors = asyncio.run(ask(f"postgresql://u@127.0.0.1:{silent.getsockname()[1]}/db"))

    assert {type(error) for error in errors} == {DatabaseUnavailable}
    assert len({str(error) for error in errors}) == 1


@pytest.mark.parametrize(
    ("url", "label"),
    [
        ("postgresql://u:secret@h/db", "postgresql://u@h/db"),
        ("postgresql://u:se?cret@h:5433/db", "postgresql://u@h:5433/db"),
        ("postgresql://u:se#cret@h/db", "postgresql://u@h/db"),
        ("postgresql://u:se[cret@h/db", "postgresql://u@h/db"),
        ("postgresql://h/db?password=secret&user=u", "postgresql://u@h/db"),
        ("postgresql://u@h/db?sslpassword=secret", "postgresql://u@h/db"),
        ("postgresql://u@h/db?p%61ssword=s%65cret", "postgresql://u@h/db"),
        ("postgresql://u:secret@h1,h2:5433/db", "postgresql://u@/db?host=h1%2Ch2&port=%2C5433"),
        ("postgresql://u:secret@/db?host=/run/pg", "postgresql://u@/db?host=%2Frun%2Fpg"),
        ("postgresql://u@h/db?sslmode=require", "postgresql://u@h/db?sslmode=require"),
    ],
)
def test_a_url_is_shown_without_its_secrets_and_still_works(url: str, label: str) -> None:
    shown = repr(Onefold(url))

    assert shown == f"Onefold({label!r})"
    assert "secret" not in conninfo_to_dict(label).values()
