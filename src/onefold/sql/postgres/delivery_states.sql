-- The current state of the jobs of some deliveries, tombstones included. Locks nothing.
select
    j.id::text, j.state, j.fence, j.lease_until, j.attempt, j.run_at, j.awaiting = j.fence,
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
from onefold.job as j
where j.shard = (:shard::smallint[])[1] and j.id = any((:id::text[])::uuid[])
