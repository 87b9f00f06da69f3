-- The number of running jobs of each worker, without those that wait for their ack. Reads the running rows (job_running).
select j.worker, count(*)
from onefold.job as j
where j.shard = :shard::smallint and j.state = 1 and (j.awaiting is null or j.awaiting <> j.fence)
group by j.worker
