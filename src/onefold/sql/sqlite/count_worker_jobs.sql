-- The number of running jobs of each worker. Reads the running rows (onefold_job_running).
select j.worker, count(*)
from onefold_job as j
where j.shard = :shard and j.state = 1
group by j.worker
