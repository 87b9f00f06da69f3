-- The running jobs of one shard that these takes have leased. Reads the running rows (job_running), of which
-- there are never more than workers can hold. Locks nothing.
select j.id::text, j.fence
from onefold.job as j
where
    j.shard = :shard::smallint
    and j.state = 1
    and j.take_id = any((:takes::text[])::uuid[])
