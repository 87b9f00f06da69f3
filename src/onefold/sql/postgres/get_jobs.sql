-- Whole jobs by id, without tombstones. Uses the primary key.
select
    j.id::text, j.tenant, j.queue, j.kind, j.priority, j.run_at, j.attempt, j.max_attempts, j.fence,
    j.payload, j.unique_key, j.generation, j.created_at, j.expires_at, j.error, j.options, j.group_key,
    j.defers, j.taken_at, j.lease_until, j.worker, j.state, j.ended_at, j.result, j.reason,
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint),
    j.awaiting, j.pushed
from onefold.job as j
where
    j.shard = (:shard::smallint[])[1]
    and j.id = any((:id::text[])::uuid[])
    and j.tenant = :tenant::text
    and not j.stripped
