-- Store the buckets of a queue and its groups.
insert into onefold_rate (shard, queue, group_key, full_at)
select r.shard, r.queue, r.group_key, r.full_at
from (
    select
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as queue,
        json_extract(value, '$[2]') as group_key,
        json_extract(value, '$[3]') as full_at
    from json_each(:rows)
) as r
where true
on conflict (shard, queue, group_key) do update
set full_at = excluded.full_at
