-- The number of running jobs of each worker, without those that wait for their ack. Reads the running rows (onefold_job_running).
select j.worker, count(*)
from onefold_job as j
where j.shard = :shard and j.state = 1 and (j.awaiting is null or j.awaiting <> j.fence)
group by j.worker
