-- Complete deliveries that still have their fence. Locks the rows in (shard, id) order, and passes over
-- rows that somebody else has locked: finish_jobs comes back for those.
with held as materialized (
    select j.shard, j.id, r.result
    from
        unnest(:shard::smallint[], :id::text[], :fence::bigint[], :result::text[])
            as r (shard, id, fence, result),
        onefold.job as j
    where
        j.shard = r.shard
        and j.id = r.id::uuid
        and j.fence = r.fence
        -- Running, or given up for lost (and not handed back) but taken by nobody since.
        and (j.state = 1 or (j.state = 0 and j.vanished > 0 and j.not_before is not null))
    order by j.shard, j.id
    for update of j skip locked
)
update onefold.job as j
set
    state = 2,
    not_before = null,
    vanished = 0,
    worker = null,
    lease_until = null,
    result = held.result,
    ended_at = clock.now,
    keep_until = clock.now
        + coalesce((j.options::jsonb #>> '{keep,completed}')::bigint, :keep::bigint),
    -- A successor gets the key.
    yielded = j.yielded or j.next is not null
from
    (select coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint))
        as clock (now),
    held
where j.shard = held.shard and j.id = held.id
returning j.id::text, j.fence, j.next, j.keep_until <= clock.now
