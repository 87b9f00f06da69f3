-- In how long the first of the deliveries that wait for their ack has waited long enough; below 0 where
-- it has already. Reads the running rows (onefold_job_running): an index of leases would cost every beat.
select min(j.lease_until) - :now
from onefold_job as j
where j.shard = :shard and j.state = 1 and j.awaiting = j.fence
