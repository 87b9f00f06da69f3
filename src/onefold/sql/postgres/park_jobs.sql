-- Mark deliveries that were pushed as waiting for their ack, with a lease of the given length. Locks the
-- rows in (shard, id) order.
with held as materialized (
    select j.id
    from onefold.job as j
    where
        j.shard = (:shard::smallint[])[1]
        and j.id = any((:id::text[])::uuid[])
        and j.state = 1
        and j.fence = any(:fence::bigint[])
    order by j.shard, j.id
    for update of j
)
update onefold.job as j
set
    awaiting = j.fence,
    awaiting_dead = r.dead,
    pushed = r.pushed,
    lease_until = clock.now + r.lease
from
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
        as clock (now),
    unnest(
        :id::text[], :fence::bigint[], :lease::bigint[], :dead::boolean[], :pushed::text[]
    ) as r (id, fence, lease, dead, pushed)
where
    j.shard = (:shard::smallint[])[1]
    and j.id = any(array(select held.id from held))
    -- As text, so that the planner finds the rows by the array, and not by the join.
    and j.id::text = r.id
    and j.fence = r.fence
returning j.id::text, j.fence
