-- Whole jobs by id, without tombstones. Uses the primary key.
select
    j.id::text, j.shard, j.tenant, j.queue, j.kind, j.state, j.priority, j.run_at, j.attempt,
    j.max_attempts, j.fence, j.lease_until, j.worker, j.payload, j.unique_key, j.unique_kind,
    j.generation, j.created_at, j.ended_at, j.keep_until, j.expires_at, j.result, j.error,
    j.reason, j.options, j.group_key, j.taken_at, j.defers,
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint),
    j.awaiting, j.pushed
from onefold.job as j
where
    j.shard = (:shard::smallint[])[1]
    and j.id = any((:id::text[])::uuid[])
    and j.tenant = :tenant::text
    and not j.stripped
