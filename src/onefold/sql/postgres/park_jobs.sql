-- Have deliveries that were pushed wait for their ack, under a lease of that length. Locks the rows in
-- (shard, id) order.
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
    -- As text: by the array alone the rows are looked up, whatever the planner thinks of the join.
    and j.id::text = r.id
    and j.fence = r.fence
returning j.id::text, j.fence
