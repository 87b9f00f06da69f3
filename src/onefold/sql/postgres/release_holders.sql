-- Take the key from holders whose window is over. A successor that waited on such a holder is older
-- than the newcomer that replaces it, and is dropped with the key. Locks the rows in (shard, id) order.
with lapsed as materialized (
    select j.shard, j.id
    from
        unnest(:shard::smallint[], :id::text[]) as r (shard, id),
        onefold.job as j
    where
        j.shard = r.shard
        and j.id = r.id::uuid
        and not j.yielded
        and j.unique_until <= :at::bigint
        and (j.unique_states >> j.state) & 1 = 0
    order by j.shard, j.id
    for update of j
)
update onefold.job as j
set yielded = true, next = null
from lapsed
where j.shard = lapsed.shard and j.id = lapsed.id
returning j.id::text
