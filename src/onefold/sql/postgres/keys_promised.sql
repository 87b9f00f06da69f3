-- Which of these jobs hold a key whose window is not over. Uses the primary key.
select j.id::text
from onefold.job as j
where
    j.shard = (:shard::smallint[])[1]
    and j.id = any((:id::text[])::uuid[])
    and not j.yielded
    and j.unique_until > coalesce(
        :now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint
    )
