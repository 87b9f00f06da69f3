-- What a replay has to read before it locks anything: the key is locked before the row.
select
    j.id::text, j.shard, j.tenant, j.queue, j.kind, j.state, j.priority, j.max_attempts,
    j.unique_kind, j.unique_key, j.unique_states, j.unique_until, j.yielded, j.stripped,
    j.fingerprint, j.expires_at,
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint),
    j.attempt, j.run_at, j.awaiting = j.fence
from onefold.job as j
where j.shard = (:shard::smallint[])[1] and j.id = any((:id::text[])::uuid[]) and j.tenant = :tenant::text
