"""`Onefold`: the object that an application creates once and uses everywhere."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

from onefold.app.api_keys import ApiKeys
from onefold.app.claims import ClaimCalls
from onefold.app.context import Context
from onefold.app.dead import DeadJobs
from onefold.app.deliveries import Deliveries
from onefold.app.jobs import JobCalls
from onefold.app.keys import Keys
from onefold.app.queues import Queues
from onefold.app.schedules import Schedules
from onefold.app.statistics import StatisticsCalls
from onefold.app.workers import Workers
from onefold.databases import open_database
from onefold.databases.borrowed import borrow
from onefold.effects.lock import Lock
from onefold.effects.once import OnceClaim
from onefold.errors import InvalidInput, LeaseLost
from onefold.jobs.cron_decorator import DeclaredOptions, Scheduling
from onefold.jobs.job_decorator import Declaring
from onefold.jobs.job_function import Registry
from onefold.model import checks
from onefold.model.claim import Claim
from onefold.model.ids import shard_count
from onefold.model.insert_once import natural
from onefold.model.timestamps import span, to_micros
from onefold.operations import claims
from onefold.operations.insert_once import insert_once
from onefold.runtime import Procedure, awaited, call, transact
from onefold.worker.settings import WorkerOptions, worker_settings
from onefold.worker.signals import run_until_signal
from onefold.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Any, Self, Unpack

    from onefold.app.context import Override
    from onefold.databases import Clock, Database, Store
    from onefold.model.event import Listener
    from onefold.model.insert_once import Existing, Inserted
    from onefold.operations.migrations import Migration
    from onefold.worker.settings import WorkerSettings


class Within(JobCalls, ClaimCalls):
    """Onefold on your connection, inside of your transaction. You commit."""

    def __init__(self, context: Context) -> None:
        self.context: Context = context
        self._runtime = context.runtime
        self.keys: Keys = Keys(context)
        self.schedules: Schedules = Schedules(context)

    @call
    def guard(self, holder: Lock | OnceClaim | Claim) -> Procedure[None]:
        """Raise `LeaseLost` unless `holder` still holds, and keep the hold until you commit.

        The check locks the row that issued the fence, in your transaction. So it also rejects a
        stale holder that writes before its successor does, which a resource that remembers the
        highest fence cannot.
        """
        if not isinstance(holder, Lock | OnceClaim | Claim):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput("holder", f"must be a lock or a claim, got {holder!r}")
        claim = holder if isinstance(holder, Claim) else holder.claim
        if claim is None:
            raise LeaseLost("a replayed claim", fence=0)
        return transact(lambda sql: claims.guard(sql, claim))

    aguard: Final = awaited(guard)

    @call
    def insert_once(
        self, table: str, values: Mapping[str, Any], *, on: str | Sequence[str]
    ) -> Procedure[Inserted | Existing]:
        """Insert a row, unless a row has the same values in the columns `on`.

        `on` names the columns of a unique constraint of the table, whose name may be
        `schema.name`; names are written as they are stored, in upper and lower case. A violation
        of another constraint raises the error of the driver.
        """
        wanted = natural(table, values, on)
        return transact(lambda sql: insert_once(sql, wanted))

    ainsert_once: Final = awaited(insert_once)


class Tenant(JobCalls, ClaimCalls):
    """Onefold for one owner of keys: jobs, keys and locks of other tenants are not visible."""

    def __init__(self, context: Context) -> None:
        self.context: Context = context
        self._runtime = context.runtime

    @cached_property
    def dead(self) -> DeadJobs:
        """Dead letters."""
        return DeadJobs(self.context)

    @cached_property
    def deliveries(self) -> Deliveries:
        """Deliveries of jobs, for your own workers."""
        return Deliveries(self.context)

    @cached_property
    def keys(self) -> Keys:
        """Claims and stored keys."""
        return Keys(self.context)

    @cached_property
    def queues(self) -> Queues:
        """Queues, their settings and limits."""
        return Queues(self.context)

    @cached_property
    def schedules(self) -> Schedules:
        """Schedules."""
        return Schedules(self.context)

    @cached_property
    def statistics(self) -> StatisticsCalls:
        """What has happened in the last minutes, or in the last day."""
        return StatisticsCalls(self.context)

    def within(self, connection: object) -> Within:
        """The same calls on your connection and inside of your transaction; you commit.

        Takes an open connection of sqlite3, aiosqlite, psycopg (sync or async), asyncpg or Django,
        or a connection or session of SQLAlchemy, sync or async. Raises `NoTransaction` if no
        transaction is open and none will be (for a session, the first call does), and
        `WrongConnection` for anything that is not a connection to this database.
        """
        borrowed = borrow(connection, self.context.database)
        borrowed.check()
        return self.context.within(borrowed)


class Onefold(Tenant):
    """A durable job queue and an idempotency toolkit on one database.

        onefold = Onefold("sqlite:///app.db")          # or "postgresql://…"
        onefold.enqueue("email", {"to": 42}, unique_key="welcome:42")

    Nothing is connected before it is used. Safe in threads, in several event loops, and after
    a fork; on SQLite, if the fork leaves no connection of the application's own open.
    """

    def __init__(
        self,
        url: str,
        *,
        schema: str = "onefold",
        busy_timeout: timedelta = timedelta(seconds=5),
        database_wait: timedelta = timedelta(seconds=2),
        clock: Callable[[], datetime] | None = None,
        shards: int | None = None,
        prepared_statements: bool | None = None,
        notify: bool = True,
    ) -> None:
        """Store the settings; the first use connects.

        `schema` is for PostgreSQL; `busy_timeout` limits the wait for locks. `database_wait` limits
        how long a request to a route, a webhook or the server waits for a database that does not
        answer. `clock` replaces the database's clock, for tests. The first migrate creates `shards`
        parts, for good; by default the number of the database (1 for a new one). If the database
        has another number, the first use raises `ShardsDiffer`. `prepared_statements` are used
        unless there is a pooler in front of PostgreSQL; set True if your pooler supports them.
        `notify=False` leaves NOTIFY out, for two-phase transactions, in which PostgreSQL does not
        allow it: workers then find due jobs by polling.
        """
        checks.schema(schema, "schema")
        span(busy_timeout, "busy_timeout")
        span(database_wait, "database_wait")
        if shards is not None:
            shard_count(shards)
        if prepared_statements is not None:
            checks.flag(prepared_statements, "prepared_statements")
        checks.flag(notify, "notify")
        opened = partial(
            open_database,
            schema=schema,
            busy_timeout=busy_timeout,
            database_wait=database_wait,
            shards=shards,
            prepared_statements=prepared_statements,
            notifies=notify,
        )
        store = self._open(url, partial(opened, clock=_ticks(clock)))
        super().__init__(Context(store, opened))
        self.jobs: Registry = Registry()

    @cached_property
    def api_keys(self) -> ApiKeys:
        """The API keys of the server, of all tenants."""
        return ApiKeys(self.context)

    @cached_property
    def queues(self) -> Queues:
        """Queues, their settings and limits."""
        return Queues(self.context, self._declared_queues)

    @cached_property
    def workers(self) -> Workers:
        """The workers that run."""
        return Workers(self.context)

    def _open(self, url: str, opened: Callable[[str], Database]) -> Store:
        """Open the database. Integrations override this if the framework names its databases."""
        return opened(url)

    def override(self, url: str, *, clock: Callable[[], datetime] | None = None) -> Override:
        """Use another database, and perhaps another clock, in a block: for tests.

            with onefold.override("sqlite:///test.db"):
                onefold.migrate()

        It applies to all threads and tasks, and to everything that belongs to this object: tenants,
        declared jobs, middleware, servers. All other options stay. Start workers inside of it.
        """
        return self.context.override(url, _ticks(clock))

    @property
    def job(self) -> Declaring:
        """Makes a job of a function, which stays a function: `@onefold.job`, with options or not.

        @onefold.job(queue="email", unique=Unique("user_id"))
        def send_email(user_id: int, template: str = "welcome") -> None: ...

        send_email.enqueue(42)
        """
        return Declaring(self, self.jobs)

    def cron(
        self, cron: str, *, name: str | None = None, **options: Unpack[DeclaredOptions]
    ) -> Scheduling:
        """Run a job at every tick of a cron expression: above `@onefold.job`, or alone.

            @onefold.cron("*/5 * * * *", tz="Europe/Berlin")
            def tidy_up() -> None: ...

        Workers store it when they start. The schedule is called like the job's kind, unless it has
        a name of its own. `report.call("eu")` gives arguments to a job that takes any.
        """
        checks.options(options, DeclaredOptions.__optional_keys__)
        return Scheduling(
            cron,
            name=name,
            options=options,
            schedules=self.schedules.declared,
            job=self.job,
            context=self.context,
        )

    def tenant(self, name: str) -> Tenant:
        """The same for one tenant."""
        return Tenant(self.context.for_tenant(checks.key(name, "tenant")))

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with each event here and of tenants, as values of `onefold.events`.

        It is called where the event happens, also in an event loop, so it must not block. Its
        errors are logged. Returns a function that removes the listener.
        """
        hooks = self.context.hooks
        hooks.add(listener)
        return lambda: hooks.remove(listener)

    def worker(self, **options: Unpack[WorkerOptions]) -> Worker:
        """A worker for this event loop: `async with onefold.worker(queues=["email"]): …`.

        It serves the queues of all declared jobs and `default`, unless `queues` names others. The
        end of the block stops it: running jobs may end within the grace, the others are handed
        back.
        """
        return self._worker(worker_settings(options))

    def run_worker(self, **options: Unpack[WorkerOptions]) -> None:
        """Work until SIGTERM or SIGINT, then stop within the grace; a second signal stops now."""
        settings = worker_settings(options)
        run_until_signal(lambda: self._worker(settings), self.aclose)

    def _worker(self, settings: WorkerSettings) -> Worker:
        return Worker(self.context, self.jobs, settings, self._declare, self._declared_queues)

    def _declared_queues(self) -> dict[str, bool]:
        """The queues that the code declares, and whether jobs are declared for them."""
        of_jobs = (*self.jobs.queues, *(one.queue for one in self.schedules.declared.schedules))
        return dict.fromkeys(self.queues.declared, False) | dict.fromkeys(of_jobs, True)

    async def _declare(self) -> None:
        """Store the queues and schedules that the code declares."""
        await self.queues.astore_declared()
        await self.schedules.astore_declared()

    def migrate(self) -> list[Migration]:
        """Bring the database's tables up to date; returns what was applied."""
        return self.context.database.migrate()

    async def amigrate(self) -> list[Migration]:
        """`migrate`, awaited."""
        return await self.context.database.amigrate()

    def close(self) -> None:
        """Close connections and threads. Safe to call twice."""
        self.context.close()

    async def aclose(self) -> None:
        """`close`, awaited: also closes this event loop's connections."""
        await self.context.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        """The database URL without its password."""
        return f"Onefold({self.context.database.label!r})"


def _ticks(clock: Callable[[], datetime] | None) -> Clock:
    if clock is None:
        return None
    if not callable(clock):
        raise InvalidInput("clock", f"must be a function that gives a datetime, got {clock!r}")
    return lambda: to_micros(clock(), "clock")
