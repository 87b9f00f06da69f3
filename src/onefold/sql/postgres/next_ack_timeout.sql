-- How long until the first delivery that waits for its ack times out; negative if one has already. Reads
-- the running rows (job_running): an index on leases would slow down every heartbeat.
select
    min(j.lease_until)
    - coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
from onefold.job as j
where j.shard = :shard::smallint and j.state = 1 and j.awaiting = j.fence
