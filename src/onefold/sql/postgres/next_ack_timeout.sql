-- In how long the first of the deliveries that wait for their ack has waited long enough; below 0 where
-- it has already. Reads the running rows (job_running): an index of leases would cost every beat.
select
    min(j.lease_until)
    - coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
from onefold.job as j
where j.shard = :shard::smallint and j.state = 1 and j.awaiting = j.fence
