-- Lock jobs by id in (shard, id) order, and read their state, from which the lifecycle decides. Jobs of
-- other tenants are not locked and not returned.
select
    j.id::text, j.shard, j.state, j.attempt, j.max_attempts, j.fence, j.vanished,
    j.options, j.next, j.stripped, j.kind, j.queue, j.worker, j.taken_at, j.ended_at, j.tenant,
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint),
    j.awaiting, j.awaiting_dead, case when j.awaiting = j.fence then j.pushed end, j.run_at
from onefold.job as j
where
    j.shard = (:shard::smallint[])[1]
    and j.id = any((:id::text[])::uuid[])
    and (:tenant::text is null or j.tenant = :tenant::text)
order by j.shard, j.id
for update of j
