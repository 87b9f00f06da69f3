-- Some queued or running jobs of a queue, of all tenants. Uses the three indexes that contain them.
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
