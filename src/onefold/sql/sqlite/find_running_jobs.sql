-- Some running jobs of a queue, or of one of its groups, that a tenant may see. Reads the running rows
-- of the queue (onefold_job_running).
select j.id
from onefold_job as j
where
    j.shard = :shard
    and j.queue = :queue
    and j.state = 1
    and (:group_key is null or j.group_key = :group_key)
    and j.tenant = :tenant
limit :limit
