-- Extend the leases of deliveries whose fence is still valid. HOT: it updates no index. Locks the rows
-- in (shard, id) order, and skips rows that other transactions have locked: one open transaction must
-- not cost all other deliveries their leases. A delivery that waits for its ack has its own lease, which
-- a late heartbeat must not shorten.
with held as materialized (
    select j.id
    from onefold.job as j
    where
        j.shard = (:shard::smallint[])[1]
        and j.id = any((:id::text[])::uuid[])
        and j.state = 1
        and j.fence = any(:fence::bigint[])
    order by j.shard, j.id
    for update of j skip locked
)
update onefold.job as j
set lease_until = case
    when j.awaiting = j.fence then greatest(j.lease_until, clock.now + :lease::bigint)
    else clock.now + :lease::bigint
end
from
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
        as clock (now),
    unnest(:id::text[], :fence::bigint[]) as r (id, fence)
where
    j.shard = (:shard::smallint[])[1]
    and j.id = any(array(select held.id from held))
    -- As text, so that the planner finds the rows by the array, and not by the join.
    and j.id::text = r.id
    and j.fence = r.fence
returning j.id::text, j.fence, j.lease_until
