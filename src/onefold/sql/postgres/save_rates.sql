-- Store the buckets of a queue and its groups.
insert into onefold.rate (shard, queue, group_key, full_at)
select r.shard, r.queue, r.group_key, r.full_at
from unnest(:shard::smallint[], :queue::text[], :group_key::text[], :full_at::bigint[])
    with ordinality as r (shard, queue, group_key, full_at, place)
order by r.place
on conflict (shard, queue, group_key) do update
set full_at = excluded.full_at
