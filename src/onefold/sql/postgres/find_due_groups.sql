-- Jobs of all groups that are due, the longest due first: where these are few, they are all there is.
select j.priority, j.run_at, j.id::text, j.shard, j.group_key
from onefold.job as j
where
    j.shard = :shard::smallint
    and j.queue = :queue::text
    and j.state = 0
    and j.group_key is not null
    and j.run_at <= coalesce(
        :now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint
    )
    and (
        j.expires_at is null
        or j.expires_at > coalesce(
            :now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint
        )
    )
    and not (j.kind = any(:unknown::text[]))
order by j.run_at, j.id
limit :limit::integer
