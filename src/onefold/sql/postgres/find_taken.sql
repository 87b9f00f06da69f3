-- The running jobs of one shard that these takes have leased. Reads the running rows (job_running):
-- their number is limited by the number of workers. Locks nothing.
select j.id::text, j.fence
from onefold.job as j
where
    j.shard = :shard::smallint
    and j.state = 1
    and j.take_id = any((:takes::text[])::uuid[])
