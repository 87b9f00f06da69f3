-- The first due jobs of some groups, at most :most of each group and priority. It visits the priorities
-- one by one, and never reads jobs that are scheduled ahead at a better priority.
with recursive lane (group_key, priority) as (
    select
        wanted.group_key,
        (
            select j.priority
            from onefold.job as j
            where
                j.shard = :shard::smallint
                and j.queue = :queue::text
                and j.state = 0
                and j.group_key = wanted.group_key
            order by j.priority
            limit 1
        )
    from unnest(:groups::text[]) as wanted (group_key)
    union all
    select
        lane.group_key,
        (
            select j.priority
            from onefold.job as j
            where
                j.shard = :shard::smallint
                and j.queue = :queue::text
                and j.state = 0
                and j.group_key = lane.group_key
                and j.priority > lane.priority
            order by j.priority
            limit 1
        )
    from lane
    where lane.priority is not null
)
select head.priority, head.run_at, head.id::text, head.shard, head.group_key
from lane
cross join lateral (
    select j.priority, j.run_at, j.id, j.shard, j.group_key
    from onefold.job as j
    where
        j.shard = :shard::smallint
        and j.queue = :queue::text
        and j.state = 0
        and j.group_key = lane.group_key
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
    limit :most::integer
) as head
where lane.priority is not null
