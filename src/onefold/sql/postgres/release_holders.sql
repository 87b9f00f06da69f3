-- Take the key from holders whose window is over. The successor of such a holder is older than the new
-- request, and is dropped. Locks the rows in (shard, id) order.
with lapsed as materialized (
    select j.id
    from onefold.job as j
    where
        j.shard = (:shard::smallint[])[1]
        and j.id = any((:id::text[])::uuid[])
        and not j.yielded
        and j.unique_until <= :at::bigint
        and (j.unique_states >> j.state) & 1 = 0
    order by j.shard, j.id
    for update of j
)
update onefold.job as j
set yielded = true, next = null
where j.shard = (:shard::smallint[])[1] and j.id = any(array(select lapsed.id from lapsed))
returning j.id::text
