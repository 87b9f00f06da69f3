-- The first due jobs without a group, of a queue with limits. It visits the priorities one by one, as
-- take_jobs does.
with recursive lane (priority) as (
    (
        select j.priority
        from onefold.job as j
        where
            j.shard = :shard::smallint
            and j.queue = :queue::text
            and j.state = 0
            and j.group_key is null
        order by j.priority
        limit 1
    )
    union all
    select (
        select j.priority
        from onefold.job as j
        where
            j.shard = :shard::smallint
            and j.queue = :queue::text
            and j.state = 0
            and j.group_key is null
            and j.priority > lane.priority
        order by j.priority
        limit 1
    )
    from lane
    where lane.priority is not null
)
select head.priority, head.run_at, head.id::text, head.shard, null
from lane
cross join lateral (
    select j.priority, j.run_at, j.id, j.shard
    from onefold.job as j
    where
        j.shard = :shard::smallint
        and j.queue = :queue::text
        and j.state = 0
        and j.group_key is null
        and j.priority = lane.priority
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
    limit :limit::integer
) as head
where lane.priority is not null
limit :limit::integer
