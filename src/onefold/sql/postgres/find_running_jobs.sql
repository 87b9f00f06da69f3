-- Some running jobs of a queue, or of one of its groups, that a tenant may see. Reads the running rows
-- of the queue (job_running).
select j.id::text
from onefold.job as j
where
    j.shard = :shard::smallint
    and j.queue = :queue::text
    and j.state = 1
    and (:group_key::text is null or j.group_key = :group_key::text)
    and j.tenant = :tenant::text
limit :limit::integer
