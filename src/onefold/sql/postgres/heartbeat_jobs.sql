-- Extend the leases of deliveries that still have their fence. HOT: touches no index. Locks the rows in
-- (shard, id) order, and passes over rows that somebody else has locked: one open transaction must not
-- cost all the others their leases.
-- One that waits for its ack has a lease of its own, which a beat that was under way must not shorten.
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
    -- As text: by the array alone the rows are looked up, whatever the planner thinks of the join.
    and j.id::text = r.id
    and j.fence = r.fence
returning j.id::text, j.fence, j.lease_until
