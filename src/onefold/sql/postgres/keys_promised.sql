-- Which of these jobs hold a key that is promised for longer. Served by the primary key.
select j.id::text
from
    unnest(:shard::smallint[], :id::text[]) as r (shard, id),
    onefold.job as j
where
    j.shard = r.shard
    and j.id = r.id::uuid
    and not j.yielded
    and j.unique_until > coalesce(
        :now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint
    )
