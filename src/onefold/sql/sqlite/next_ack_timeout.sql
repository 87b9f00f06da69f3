-- How long until the first delivery that waits for its ack times out; negative if one has already. Reads
-- the running rows (onefold_job_running): an index on leases would slow down every heartbeat.
select min(j.lease_until) - :now
from onefold_job as j
where j.shard = :shard and j.state = 1 and j.awaiting = j.fence
