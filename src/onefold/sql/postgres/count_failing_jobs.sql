-- The number of jobs per queue that wait for a retry, and of those that are dead. An empty tenant is
-- all tenants. It reads the two indexes that contain such jobs, and no rows.
select counted.queue, sum(counted.retrying)::bigint, sum(counted.dead)::bigint
from (
    select j.queue, count(*) as retrying, 0 as dead
    from onefold.job as j
    where
        j.shard = :shard::smallint
        and j.state = 0
        and j.attempt > 0
        and (:tenant::text = '' or j.tenant = :tenant::text)
    group by j.queue
    union all
    select j.queue, 0, count(*)
    from onefold.job as j
    where
        j.shard = :shard::smallint
        and j.state = 3
        and not j.stripped
        and (:tenant::text = '' or j.tenant = :tenant::text)
    group by j.queue
) as counted
group by counted.queue
