-- The number of running jobs of each worker. Reads the running rows (job_running).
select j.worker, count(*)
from onefold.job as j
where j.shard = :shard::smallint and j.state = 1
group by j.worker
