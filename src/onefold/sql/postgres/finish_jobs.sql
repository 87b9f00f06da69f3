-- Complete deliveries whose fence is still valid. Waits for rows that other transactions have locked.
-- Locks in (shard, id) order.
with held as materialized (
    select j.id
    from onefold.job as j
    where
        j.shard = (:shard::smallint[])[1]
        and j.id = any((:id::text[])::uuid[])
        and j.fence = any(:fence::bigint[])
        -- Running; or its lease or ack has timed out (it was not handed back), and it was not taken
        -- since.
        and (
            j.state = 1
            or (j.state = 0 and j.vanished > 0 and j.not_before is not null)
            or (j.state = 0 and j.awaiting = j.fence)
        )
    order by j.shard, j.id
    for update of j
)
update onefold.job as j
set
    state = 2,
    not_before = null,
    vanished = 0,
    lease_until = null,
    result = r.result,
    ended_at = clock.now,
    keep_until = clock.now
        + coalesce((j.options::jsonb #>> '{keep,completed}')::bigint, :keep::bigint),
    -- A successor gets the key.
    yielded = j.yielded or j.next is not null
from
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
        as clock (now),
    unnest(:id::text[], :fence::bigint[], :result::text[]) as r (id, fence, result)
where
    j.shard = (:shard::smallint[])[1]
    and j.id = any(array(select held.id from held))
    -- As text, so that the planner finds the rows by the array, and not by the join.
    and j.id::text = r.id
    and j.fence = r.fence
returning j.id::text, j.fence, j.next, j.keep_until <= clock.now
