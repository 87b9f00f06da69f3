-- The number of jobs per queue that are due, scheduled, running and waiting for their ack, and how long
-- the oldest job has been due (negative if none is). It reads the three indexes without ended jobs.
select
    counted.queue,
    sum(counted.ready),
    sum(counted.scheduled),
    sum(counted.running),
    sum(counted.awaiting),
    max(counted.oldest)
from (
    select
        j.queue as queue,
        sum(j.run_at <= :now) as ready,
        sum(j.run_at > :now) as scheduled,
        0 as running,
        0 as awaiting,
        max(:now - j.run_at) as oldest
    from onefold_job as j
    where j.shard = :shard and j.state = 0 and j.group_key is null
    group by j.queue
    union all
    select
        j.queue,
        sum(j.run_at <= :now),
        sum(j.run_at > :now),
        0,
        0,
        max(:now - j.run_at)
    from onefold_job as j
    where j.shard = :shard and j.state = 0 and j.group_key is not null
    group by j.queue
    union all
    select j.queue, 0, 0, count(*), coalesce(sum(j.awaiting = j.fence), 0), null
    from onefold_job as j
    where j.shard = :shard and j.state = 1
    group by j.queue
) as counted
group by counted.queue
