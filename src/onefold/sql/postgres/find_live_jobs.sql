-- Some jobs of a queue that are queued or running, whosever they are. In the
-- order of the three indexes that have them, so that a plan for a few reads no table from its beginning.
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
