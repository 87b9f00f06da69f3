-- Statistics by buckets of :width microseconds, from the one that began :back microseconds before this
-- minute; and the time, also without any. Backlog is the sum of all queues, at its highest. Duplicates that
-- are not folded yet are added. :prefix is the tenant, as in the names of queues.
with
clock (now, since) as (
    select n.now, n.now - n.now % 60000000 - :back::bigint
    from (
        select coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint) as now
    ) as n
),
counted as (
    select
        s.minute, s.queue, s.completed, s.retried, s.deferred, s.dead, s.duplicates, s.measured,
        s.waited_total, s.waited_longest, s.ran_total, s.ran_longest, s.backlog
    from onefold.statistic as s
    cross join clock
    where s.shard = :shard::smallint and s.minute >= clock.since
    union all
    select
        n.at - n.at % 60000000, coalesce(j.queue, ''), 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, null
    from (
        select d.at, d.job_id
        from onefold.duplicate as d
        cross join clock
        where d.shard = :shard::smallint and d.at >= clock.since
    ) as n
    -- The limit makes it one look-up of a job by its id for each of them.
    left join lateral (
        select f.queue
        from onefold.job as f
        where f.shard = :shard::smallint and f.id = n.job_id
        limit 1
    ) as j on true
),
by_minute as (
    select
        c.minute,
        sum(c.completed) as completed,
        sum(c.retried) as retried,
        sum(c.deferred) as deferred,
        sum(c.dead) as dead,
        sum(c.duplicates) as duplicates,
        sum(c.measured) as measured,
        sum(c.waited_total) as waited_total,
        sum(c.ran_total) as ran_total,
        max(c.waited_longest) as waited_longest,
        max(c.ran_longest) as ran_longest,
        sum(c.backlog) as backlog
    from counted as c
    where
        (:queue::text is null or c.queue = :queue::text)
        and starts_with(c.queue, :prefix::text)
    group by c.minute
),
by_bucket as (
    select
        m.minute - (m.minute - clock.since) % :width::bigint as bucket,
        sum(m.completed)::bigint as completed,
        sum(m.retried)::bigint as retried,
        sum(m.deferred)::bigint as deferred,
        sum(m.dead)::bigint as dead,
        sum(m.duplicates)::bigint as duplicates,
        sum(m.measured)::bigint as measured,
        sum(m.waited_total)::bigint as waited_total,
        sum(m.ran_total)::bigint as ran_total,
        max(m.waited_longest) as waited_longest,
        max(m.ran_longest) as ran_longest,
        max(m.backlog)::bigint as backlog
    from by_minute as m
    cross join clock
    group by bucket
)
select
    b.bucket, b.completed, b.retried, b.deferred, b.dead, b.duplicates, b.measured, b.waited_total,
    b.waited_longest, b.ran_total, b.ran_longest, b.backlog, clock.now
from clock
left join by_bucket as b on true
