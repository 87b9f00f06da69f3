"""Schedules that code declares: stored when a worker starts, and changed with the code."""

from datetime import timedelta
from typing import Any

import pytest

from onefold import InvalidInput, Onefold, Retention, Run, Unique
from tests.fixtures.colours import Clock, Coloured

HOUR = timedelta(hours=1)


def declare(onefold: Coloured, cron: str = "0 * * * *", **options: Any) -> Any:
    """As a module does that is imported anew: by a new function every time."""

    def tidy() -> None:
        """Do nothing."""

    application: Onefold = onefold.target
    return application.cron(cron, **options)(tidy)


async def test_a_function_becomes_a_job_that_runs_at_every_tick(
    onefold: Coloured, clock: Clock
) -> None:
    tidy = declare(onefold, tz="Europe/Berlin", catch_up="skip")
    (stored,) = await onefold.schedules.store_declared()
    clock.advance(HOUR)
    ticked = await onefold.deliveries.tick()

    assert onefold.target.jobs.get("tidy") is tidy
    assert tidy() is None
    assert (stored.name, stored.kind, stored.tz) == ("tidy", "tidy", "Europe/Berlin")
    assert (stored.catch_up, stored.declared, stored.payload) == ("skip", True, {})
    assert [tick.kind for tick in ticked.ticks] == ["tidy"]


async def test_a_declared_job_keeps_its_options(onefold: Coloured, clock: Clock) -> None:
    application: Onefold = onefold.target

    @application.cron("0 * * * *", name="hourly report")
    @application.job(
        kind="report",
        queue="reports",
        max_attempts=2,
        unique=Unique(),
        retention=Retention(completed=HOUR),
    )
    def report(run: Run, region: str = "eu") -> None: ...

    await onefold.schedules.store_declared()
    clock.advance(HOUR)
    (tick,) = (await onefold.deliveries.tick()).ticks
    job = await onefold.get(tick.enqueued.id)

    assert tick.schedule == "hourly report"
    assert (job.kind, job.queue, job.max_attempts) == ("report", "reports", 2)
    assert job.unique_key == report.unique_key()
    assert job.retention is not None


async def test_a_call_gives_a_job_its_arguments(onefold: Coloured) -> None:
    application: Onefold = onefold.target

    @application.job
    def report(region: str, *, days: int = 7) -> None: ...

    for region in ("eu", "us"):
        application.cron("0 3 * * *", name=f"report {region}")(report.call(region))
    stored = await onefold.schedules.store_declared()

    assert [(each.name, each.payload["region"]) for each in stored] == [
        ("report eu", "eu"),
        ("report us", "us"),
    ]


@pytest.mark.parametrize("first", ["operator", "code"])
async def test_what_an_operator_has_made_or_taken_over_stays(onefold: Coloured, first: str) -> None:
    declare(onefold)
    if first == "code":
        await onefold.schedules.store_declared()
    made = await onefold.schedules.save("tidy", "0 3 * * *", kind="tidy")

    assert not made.declared
    assert await onefold.schedules.store_declared() == [made]
    assert await onefold.schedules.find() == [made]


def test_a_name_has_one_schedule_and_its_function_needs_no_arguments(onefold: Coloured) -> None:
    application: Onefold = onefold.target

    def needs(region: str) -> None: ...

    with pytest.raises(InvalidInput, match="region"):
        application.cron("0 3 * * *")(needs)

    @application.cron("0 3 * * *")
    @application.job
    def report(region: str = "eu") -> None: ...

    def other() -> None: ...

    with pytest.raises(InvalidInput, match="name 'report' is a schedule already"):
        application.cron("0 4 * * *")(report)
    with pytest.raises(InvalidInput, match="another name="):
        application.cron("0 4 * * *", name="report")(report.call("us"))
    with pytest.raises(InvalidInput, match="name 'report' is a schedule already"):
        application.cron("0 4 * * *", name="report")(other)
    application.cron("0 4 * * *", name="early")(report)
    assert application.schedules.declared.names == ("report", "early")


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("cron", {"cron": "0 0 */20 * 1L"}),
        ("tz", {"tz": "Mars"}),
        ("name", {"name": ""}),
        ("queue", {"queue": "reports"}),
    ],
)
def test_a_bad_declaration_is_refused_where_it_stands(field: str, options: Any) -> None:
    application = Onefold("sqlite:///never-opened.db")
    said: dict[str, Any] = {"cron": "0 3 * * *", **options}

    with pytest.raises(InvalidInput) as caught:
        application.cron(**said)

    assert caught.value.field == field
    assert application.jobs.kinds == ()
