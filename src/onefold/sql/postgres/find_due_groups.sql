-- Jobs of all groups that are due: the longest due and the latest. Where these are few, they are all
-- there is; where they are many, the latest are seldom those of a group with a heap of older ones.
-- So many are written here, since a plan that does not know how few are wanted would sort them all.
(
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
        -- Spelled as by take_jobs, for the planner.
        and nullif(j.kind = any(:unknown::text[]), true) is not null
    order by j.run_at, j.id
    limit 256
)
union all
(
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
        and nullif(j.kind = any(:unknown::text[]), true) is not null
    order by j.run_at desc, j.id desc
    limit 256
)
