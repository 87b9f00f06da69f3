-- What a worker reads about its queues: settings, whether a job is due, and when the next job will be.
-- For each queue, the priorities with waiting jobs are visited one by one (an index skip scan of
-- job_ready); jobs with a group are found by their time (job_group_due).
with recursive lane (queue, priority) as (
    select
        wanted.queue,
        (
            select j.priority
            from onefold.job as j
            where
                j.shard = :shard::smallint
                and j.queue = wanted.queue
                and j.state = 0
                and j.group_key is null
            order by j.priority
            limit 1
        )
    from unnest(:queues::text[]) as wanted (queue)
    union all
    select
        lane.queue,
        (
            select j.priority
            from onefold.job as j
            where
                j.shard = :shard::smallint
                and j.queue = lane.queue
                and j.state = 0
                and j.group_key is null
                and j.priority > lane.priority
            order by j.priority
            limit 1
        )
    from lane
    where lane.priority is not null
)
select
    wanted.queue,
    coalesce(q.paused, false),
    coalesce(q.controlled, false),
    -- The first by time, because a plan that looks for any due job may read the whole table.
    exists (
        select 1
        from lane
        cross join lateral (
            select j.run_at
            from onefold.job as j
            where
                j.shard = :shard::smallint
                and j.queue = wanted.queue
                and j.state = 0
                and j.group_key is null
                and j.priority = lane.priority
                and (j.expires_at is null or j.expires_at > clock.now)
            order by j.run_at
            limit 1
        ) as head
        where
            lane.queue = wanted.queue and lane.priority is not null and head.run_at <= clock.now
    ),
    coalesce(
        (
            select j.run_at <= clock.now
            from onefold.job as j
            where
                j.shard = :shard::smallint
                and j.queue = wanted.queue
                and j.state = 0
                and j.group_key is not null
                and (j.expires_at is null or j.expires_at > clock.now)
            order by j.run_at
            limit 1
        ),
        false
    ),
    least(
        (
            select min(ahead.run_at)
            from lane
            cross join lateral (
                select j.run_at
                from onefold.job as j
                where
                    j.shard = :shard::smallint
                    and j.queue = wanted.queue
                    and j.state = 0
                    and j.group_key is null
                    and j.priority = lane.priority
                    and j.run_at > clock.now
                order by j.run_at
                limit 1
            ) as ahead
            where lane.queue = wanted.queue and lane.priority is not null
        ),
        (
            select j.run_at
            from onefold.job as j
            where
                j.shard = :shard::smallint
                and j.queue = wanted.queue
                and j.state = 0
                and j.group_key is not null
                and j.run_at > clock.now
            order by j.run_at
            limit 1
        )
    ),
    clock.now
from unnest(:queues::text[]) as wanted (queue)
left join onefold.queue as q on q.shard = :shard::smallint and q.name = wanted.queue
cross join
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
        as clock (now)
