"""`Onefold`: the object an application makes once and uses everywhere."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from onefold.calls.api_keys import ApiKeyCalls
from onefold.calls.callbacks import CallbackCalls
from onefold.calls.claims import ClaimCalls
from onefold.calls.defaults import Said
from onefold.calls.engine import Engine
from onefold.calls.jobs import JobCalls
from onefold.calls.keys import KeyCalls
from onefold.calls.procedure import Conductor
from onefold.calls.queues import QueueCalls
from onefold.calls.schedules import DeclaredOptions, ScheduleCalls, save
from onefold.calls.served_queues import ServedQueueCalls
from onefold.calls.why import WhyCalls
from onefold.calls.within import Within
from onefold.cron import Crons, Scheduling
from onefold.databases import open_database
from onefold.databases.borrowed import borrow
from onefold.declaring import Declaring
from onefold.effects.step_admin import StepCalls
from onefold.errors import InvalidInput
from onefold.job import Registry
from onefold.model import checks
from onefold.model.ids import shard_count
from onefold.model.queue import QueueLimits, queue_limits
from onefold.model.timestamps import span, to_micros
from onefold.worker.settings import WorkerOptions, worker_settings
from onefold.worker.signals import run_until_signal
from onefold.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self, Unpack

    from onefold.calls.hooks import Hooks
    from onefold.databases import Clock, Database
    from onefold.model.event import Listener
    from onefold.model.lifecycle import Retention
    from onefold.model.limit import Limit
    from onefold.model.retry import Backoff
    from onefold.model.schedule import Schedule
    from onefold.operations.migrations import Migration
    from onefold.worker.settings import WorkerSettings


class Tenant(
    JobCalls,
    ClaimCalls,
    KeyCalls,
    ScheduleCalls,
    StepCalls,
    WhyCalls,
    CallbackCalls,
    ServedQueueCalls,
):
    """Onefold for one owner of keys: jobs, keys and locks of others are out of sight."""

    def __init__(self, conductor: Conductor, tenant: str) -> None:
        """Made by `tenant`."""
        self._conductor = conductor
        self._tenant = tenant

    def within(self, connection: object) -> Within:
        """This tenant on your connection and inside your transaction; you commit.

        Takes an open connection of sqlite3, aiosqlite, psycopg (sync or async), asyncpg or Django,
        or a connection or session of SQLAlchemy, sync or async. Raises `NoTransaction` where none
        is open and none will be (for a session, the first call does), `WrongConnection` for
        anything that is not a connection to this database.
        """
        database = self._conductor.database
        borrowed = borrow(connection, database)
        borrowed.check()
        return Within(self._conductor.lent(borrowed), self._tenant)


class Onefold(Tenant, QueueCalls, ApiKeyCalls):
    """A durable job queue and an idempotency toolkit on one database.

        onefold = Onefold("sqlite:///app.db")          # or "postgresql://…"
        onefold.enqueue("email", {"to": 42}, unique_key="welcome:42")

    Nothing is connected before it is used. Safe in threads, in several event loops, and after fork.
    """

    def __init__(
        self,
        url: str,
        *,
        schema: str = "onefold",
        busy_timeout: timedelta = timedelta(seconds=5),
        clock: Callable[[], datetime] | None = None,
        shards: int | None = None,
        prepared_statements: bool | None = None,
        notify: bool = True,
    ) -> None:
        """Nothing is connected yet.

        `schema` is PostgreSQL's; `busy_timeout` bounds the wait for what others hold; `clock`
        replaces the database's clock, for tests. `shards` is how many parts the first migrate
        makes, for good; left out, it is what the database has (1 for a new one), and where it has
        another number, the first use raises `ShardsDiffer`. `prepared_statements` are used unless
        there is a pooler between us and PostgreSQL; say True where yours carries them along.
        `notify=False` leaves NOTIFY out, for two-phase transactions, which PostgreSQL does not let
        have any: workers then find what is due by looking for it.
        """
        checks.schema(schema, "schema")
        span(busy_timeout, "busy_timeout")
        if clock is not None and not callable(clock):
            raise InvalidInput("clock", f"must be a function that gives a datetime, got {clock!r}")
        if shards is not None:
            shard_count(shards)
        if prepared_statements is not None:
            checks.flag(prepared_statements, "prepared_statements")
        checks.flag(notify, "notify")
        ticks: Clock = (lambda: None) if clock is None else (lambda: to_micros(clock(), "clock"))
        opened = partial(
            open_database,
            schema=schema,
            clock=ticks,
            busy_timeout=busy_timeout,
            shards=shards,
            prepared_statements=prepared_statements,
            notifies=notify,
        )
        super().__init__(self._conducts(url, opened, ticks), "")
        self.engine: Engine = Engine(self._conductor)
        self.hooks: Hooks = self._conductor.hooks
        self.jobs: Registry = Registry()
        self._queue_limits: dict[str, QueueLimits] = {}
        self.crons: Crons = Crons()

    def _conducts(self, url: str, opened: Callable[[str], Database], clock: Clock) -> Conductor:
        """Who carries calls out. A framework that names databases in its own way has another."""
        return Conductor(opened(url), clock)

    @property
    def job(self) -> Declaring:
        """Makes a job of a function, which stays a function: `@onefold.job`, with options or not.

        @onefold.job(queue="email", unique=Unique("user_id"))
        def send_email(user_id: int, template: str = "welcome") -> None: ...

        send_email.enqueue(42)
        """
        return Declaring(self, self.jobs, self._conductor)

    def queue(
        self,
        name: str,
        *,
        backoff: Backoff | None = None,
        retention: Retention | None = None,
        timeout: timedelta | None = None,
        limit: Limit | None = None,
        group_limit: Limit | None = None,
        ordered: bool = False,
    ) -> None:
        """Say what holds for jobs that are enqueued in a queue and do not say it themselves.

        A job beats its kind, and a kind its queue. It holds for what this object enqueues from now
        on, tenants and `within` included. Limits hold for every worker from the start of one that
        declares them, unless an operator has set others: `limit` of the whole queue, `group_limit`
        of each group, `ordered` for one job of a group at a time, in order.
        """
        limits = queue_limits(limit, group_limit, ordered=ordered)
        said = Said(backoff, retention, timeout, group_limit)
        self._conductor.defaults.say_of_queue(name, said)
        self._queue_limits[name] = limits

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
            crons=self.crons,
            job=self.job,
            conductor=self._conductor,
        )

    def declare_schedules(self) -> list[Schedule]:
        """Store what `cron` has declared, as every worker does when it starts.

        What `schedule()` has made under the same name stays as it is.
        """
        return self._conductor.run(save(self.crons.wishes))

    async def adeclare_schedules(self) -> list[Schedule]:
        """`declare_schedules`, awaited."""
        return await self._conductor.arun(save(self.crons.wishes))

    def tenant(self, name: str) -> Tenant:
        """The same for one owner of keys."""
        return Tenant(self._conductor, checks.key(name, "tenant"))

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Tell `listener` what happens here and to tenants, as values of `onefold.events`.

        It is called where it happened, in an event loop too: it must not block. What it raises is
        logged. The answer is a function that ends it.
        """
        self.hooks.add(listener)
        return lambda: self.hooks.remove(listener)

    def worker(self, **options: Unpack[WorkerOptions]) -> Worker:
        """A worker for this event loop: `async with onefold.worker(queues=["email"]): …`.

        It serves the queues of all declared jobs and `default`, unless `queues` names others.
        Leaving the block stops it: what runs may end within the grace, the rest is handed back.
        """
        return self._worker(worker_settings(options))

    def run_worker(self, **options: Unpack[WorkerOptions]) -> None:
        """Work until SIGTERM or SIGINT, and end within the grace; a second signal ends it now."""
        settings = worker_settings(options)
        run_until_signal(lambda: self._worker(settings), self.aclose)

    def _worker(self, settings: WorkerSettings) -> Worker:
        return Worker(self._conductor, self.jobs, settings, self._declare, self._declared_queues)

    def _declared_queues(self) -> dict[str, bool]:
        """The queues that the code declares, and whether jobs are declared for them."""
        of_jobs = (*self.jobs.queues, *(wish.queue for wish in self.crons.wishes))
        return dict.fromkeys(self._queue_limits, False) | dict.fromkeys(of_jobs, True)

    async def _declare(self) -> None:
        """Write down what the code says of queues and schedules."""
        await self.adeclare_queues()
        await self.adeclare_schedules()

    def migrate(self) -> list[Migration]:
        """Bring the database's tables up to date; answers with what was applied."""
        return self._conductor.database.migrate()

    async def amigrate(self) -> list[Migration]:
        """`migrate`, awaited."""
        return await self._conductor.database.amigrate()

    def close(self) -> None:
        """Close connections and threads. Safe to call twice."""
        self._conductor.suppressing.flush()
        self._conductor.database.close()

    async def aclose(self) -> None:
        """`close`, awaited: also closes this event loop's connections."""
        await self._conductor.suppressing.aflush()
        await self._conductor.database.aclose()

    def __enter__(self) -> Self:
        """Use it in a `with` to have it closed."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    async def __aenter__(self) -> Self:
        """Use it in an `async with` to have it closed."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        await self.aclose()

    def __repr__(self) -> str:
        """The database, without its password."""
        return f"Onefold({self._conductor.database.label!r})"
