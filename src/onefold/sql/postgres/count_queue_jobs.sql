-- The number of jobs of these queues that are due, scheduled, running, waiting for their ack, and dead
-- (of the tenant), and how long the oldest job has been due (negative if none is). It reads the four
-- indexes that contain such jobs.
select
    counted.queue,
    sum(counted.ready)::bigint,
    sum(counted.scheduled)::bigint,
    sum(counted.running)::bigint,
    sum(counted.awaiting)::bigint,
    sum(counted.dead)::bigint,
    max(counted.oldest)
from (
    select
        j.queue,
        count(*) filter (where j.run_at <= clock.now) as ready,
        count(*) filter (where j.run_at > clock.now) as scheduled,
        0 as running,
        0 as awaiting,
        0 as dead,
        max(clock.now - j.run_at) as oldest
    from onefold.job as j
    cross join
        coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
            as clock (now)
    where
        j.shard = :shard::smallint
        and j.queue = any(:queues::text[])
        and j.state = 0
        and j.group_key is null
    group by j.queue
    union all
    select
        j.queue,
        count(*) filter (where j.run_at <= clock.now),
        count(*) filter (where j.run_at > clock.now),
        0,
        0,
        0,
        max(clock.now - j.run_at)
    from onefold.job as j
    cross join
        coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
            as clock (now)
    where
        j.shard = :shard::smallint
        and j.queue = any(:queues::text[])
        and j.state = 0
        and j.group_key is not null
    group by j.queue
    union all
    select j.queue, 0, 0, count(*), count(*) filter (where j.awaiting = j.fence), 0, null
    from onefold.job as j
    where j.shard = :shard::smallint and j.queue = any(:queues::text[]) and j.state = 1
    group by j.queue
    union all
    select j.queue, 0, 0, 0, 0, count(*), null
    from onefold.job as j
    where
        j.shard = :shard::smallint
        and j.tenant = :tenant::text
        and j.queue = any(:queues::text[])
        and j.state = 3
        and not j.stripped
    group by j.queue
) as counted
group by counted.queue
