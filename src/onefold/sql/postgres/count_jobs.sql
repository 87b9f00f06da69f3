-- The number of jobs per queue that are due, scheduled, running and waiting for their ack, and how long
-- the oldest job has been due (negative if none is). It reads the three indexes without ended jobs.
select
    counted.queue,
    sum(counted.ready)::bigint,
    sum(counted.scheduled)::bigint,
    sum(counted.running)::bigint,
    sum(counted.awaiting)::bigint,
    max(counted.oldest)
from (
    select
        j.queue,
        count(*) filter (where j.run_at <= clock.now) as ready,
        count(*) filter (where j.run_at > clock.now) as scheduled,
        0 as running,
        0 as awaiting,
        max(clock.now - j.run_at) as oldest
    from onefold.job as j
    cross join
        coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
            as clock (now)
    where j.shard = :shard::smallint and j.state = 0 and j.group_key is null
    group by j.queue
    union all
    select
        j.queue,
        count(*) filter (where j.run_at <= clock.now),
        count(*) filter (where j.run_at > clock.now),
        0,
        0,
        max(clock.now - j.run_at)
    from onefold.job as j
    cross join
        coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
            as clock (now)
    where j.shard = :shard::smallint and j.state = 0 and j.group_key is not null
    group by j.queue
    union all
    select j.queue, 0, 0, count(*), count(*) filter (where j.awaiting = j.fence), null
    from onefold.job as j
    where j.shard = :shard::smallint and j.state = 1
    group by j.queue
) as counted
group by counted.queue
