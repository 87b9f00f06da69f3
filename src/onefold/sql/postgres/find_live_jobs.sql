-- Some jobs of a queue that are queued or running, whosever they are. By the three indexes that have them.
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
        limit :limit::integer
    )
    union all
    (
        select j.id::text, j.tenant
        from onefold.job as j
        where j.shard = :shard::smallint and j.queue = :queue::text and j.state = 1
        limit :limit::integer
    )
) as live
limit :limit::integer
