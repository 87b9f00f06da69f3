-- The job that was taken after the end of a queue's hold, if it is still running. Reads the running rows
-- of the queue (onefold_job_running).
select j.id
from onefold_job as j
where j.shard = :shard and j.queue = :queue and j.state = 1 and j.taken_at >= :since
limit 1
