-- Some jobs of a queue that are queued or running, whosever they are. By the three indexes that have them.
select live.id, live.tenant
from (
    select j.id, j.tenant
    from onefold_job as j
    where j.shard = :shard and j.queue = :queue and j.state = 0 and j.group_key is null
    union all
    select j.id, j.tenant
    from onefold_job as j
    where j.shard = :shard and j.queue = :queue and j.state = 0 and j.group_key is not null
    union all
    select j.id, j.tenant
    from onefold_job as j
    where j.shard = :shard and j.queue = :queue and j.state = 1
) as live
limit :limit
