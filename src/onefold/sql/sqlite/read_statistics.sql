-- Statistics by buckets of :width microseconds, from the one that began :back microseconds before this
-- minute; and the time, also without any. Backlog is the sum of all queues, at its highest. Duplicates that
-- are not folded yet are added. :prefix is the tenant, as in the names of queues.
with
clock (now, since) as (
    select :now, :now - :now % 60000000 - :back
),
counted as (
    select
        s.minute, s.queue, s.completed, s.retried, s.deferred, s.dead, s.duplicates, s.measured,
        s.waited_total, s.waited_longest, s.ran_total, s.ran_longest, s.backlog
    from onefold_statistic as s
    where s.shard = :shard and s.minute >= (select since from clock)
    union all
    select
        d.at - d.at % 60000000, coalesce(j.queue, ''), 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, null
    from onefold_duplicate as d
    left join onefold_job as j on j.shard = d.shard and j.id = d.job_id
    where d.shard = :shard and d.at >= (select since from clock)
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
        (:queue is null or c.queue = :queue)
        and substr(c.queue, 1, length(:prefix)) = :prefix
    group by c.minute
),
by_bucket as (
    select
        m.minute - (m.minute - clock.since) % :width as bucket,
        sum(m.completed) as completed,
        sum(m.retried) as retried,
        sum(m.deferred) as deferred,
        sum(m.dead) as dead,
        sum(m.duplicates) as duplicates,
        sum(m.measured) as measured,
        sum(m.waited_total) as waited_total,
        sum(m.ran_total) as ran_total,
        max(m.waited_longest) as waited_longest,
        max(m.ran_longest) as ran_longest,
        max(m.backlog) as backlog
    from by_minute as m
    cross join clock
    group by bucket
)
select
    b.bucket, b.completed, b.retried, b.deferred, b.dead, b.duplicates, b.measured, b.waited_total,
    b.waited_longest, b.ran_total, b.ran_longest, b.backlog, clock.now
from clock
left join by_bucket as b on true
