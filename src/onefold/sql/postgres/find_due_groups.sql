-- Due jobs of all groups: those that are due longest, and the latest. If there are few due jobs, these
-- are all of them. If there are many, the latest are rarely of a group with many older ones. The number
-- is written in the text, because a plan for an unknown number would sort all due jobs.
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
        -- Written as in take_jobs, for the planner.
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
