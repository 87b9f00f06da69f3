-- The job that was taken after the end of a queue's hold, if it is still running. Reads the running rows
-- of the queue (job_running).
select j.id::text
from onefold.job as j
where
    j.shard = :shard::smallint
    and j.queue = :queue::text
    and j.state = 1
    and j.taken_at >= :since::bigint
limit 1
