-- Extend the leases of deliveries that still have their fence. HOT: touches no index. Locks the rows in
-- (shard, id) order.
with held as materialized (
    select j.shard, j.id
    from
        unnest(:shard::smallint[], :id::text[], :fence::bigint[]) as r (shard, id, fence),
        onefold.job as j
    where j.shard = r.shard and j.id = r.id::uuid and j.state = 1 and j.fence = r.fence
    order by j.shard, j.id
    for update of j
)
update onefold.job as j
set lease_until = clock.now + :lease::bigint
from
    (select coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint))
        as clock (now),
    held
where j.shard = held.shard and j.id = held.id
returning j.id::text, j.fence, j.lease_until
