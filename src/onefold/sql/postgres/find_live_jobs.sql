-- Some queued or running jobs of a queue, of all tenants. In the order of the three indexes that contain
-- them, so that a plan for a few rows does not scan the table.
select live.id, live.tenant
from (
    (
        select j.id::text, j.tenant
        from onefold.job as j
        where
            j.shard = :shard::smallint
            and j.queue = :queue::text
            and j.state = 0
            and j.group_key is null
        order by j.priority, j.run_at, j.id
        limit :limit::integer
    )
    union all
    (
        select j.id::text, j.tenant
        from onefold.job as j
        where
            j.shard = :shard::smallint
            and j.queue = :queue::text
            and j.state = 0
            and j.group_key is not null
        order by j.run_at, j.id
        limit :limit::integer
    )
    union all
    (
        select j.id::text, j.tenant
        from onefold.job as j
        where j.shard = :shard::smallint and j.queue = :queue::text and j.state = 1
        order by j.group_key, j.id
        limit :limit::integer
    )
) as live
limit :limit::integer
