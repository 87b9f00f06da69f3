-- The number of jobs per queue that wait for a retry, and of those that are dead. An empty tenant is
-- all tenants. It reads the two indexes that contain such jobs, and no rows: `+` keeps
-- SQLite from the primary key.
select counted.queue, sum(counted.retrying), sum(counted.dead)
from (
    select j.queue as queue, count(*) as retrying, 0 as dead
    from onefold_job as j
    where
        +j.shard = :shard
        and j.state = 0
        and j.attempt > 0
        and (:tenant = '' or j.tenant = :tenant)
    group by j.queue
    union all
    select j.queue, 0, count(*)
    from onefold_job as j
    where
        +j.shard = :shard
        and j.state = 3
        and not j.stripped
        and (:tenant = '' or j.tenant = :tenant)
    group by j.queue
) as counted
group by counted.queue
