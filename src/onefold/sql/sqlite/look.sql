-- What a worker reads about its queues: settings, whether a job is due, and when the next job will be.
-- For each queue, the priorities with waiting jobs are visited one by one (an index skip scan of
-- onefold_job_ready); jobs with a group are found by their time (onefold_job_group_due).
with recursive lane (queue, priority) as (
    select
        wanted.value,
        (
            select min(j.priority)
            from onefold_job as j
            where
                j.shard = :shard and j.queue = wanted.value and j.state = 0 and j.group_key is null
        )
    from json_each(:queues) as wanted
    union all
    select
        lane.queue,
        (
            select min(j.priority)
            from onefold_job as j
            where
                j.shard = :shard
                and j.queue = lane.queue
                and j.state = 0
                and j.group_key is null
                and j.priority > lane.priority
        )
    from lane
    where lane.priority is not null
)
select
    wanted.value,
    coalesce(q.paused, 0),
    coalesce(q.controlled, 0),
    exists (
        select 1
        from lane
        where
            lane.queue = wanted.value
            and exists (
                select 1
                from onefold_job as j
                where
                    j.shard = :shard
                    and j.queue = wanted.value
                    and j.state = 0
                    and j.group_key is null
                    and j.priority = lane.priority
                    and j.run_at <= :now
                    and (j.expires_at is null or j.expires_at > :now)
            )
    ),
    exists (
        select 1
        from onefold_job as j
        where
            j.shard = :shard
            and j.queue = wanted.value
            and j.state = 0
            and j.group_key is not null
            and j.run_at <= :now
            and (j.expires_at is null or j.expires_at > :now)
    ),
    (
        select min(ahead.run_at)
        from (
            select (
                select min(j.run_at)
                from onefold_job as j
                where
                    j.shard = :shard
                    and j.queue = wanted.value
                    and j.state = 0
                    and j.group_key is null
                    and j.priority = lane.priority
                    and j.run_at > :now
            ) as run_at
            from lane
            where lane.queue = wanted.value and lane.priority is not null
            union all
            select min(j.run_at)
            from onefold_job as j
            where
                j.shard = :shard
                and j.queue = wanted.value
                and j.state = 0
                and j.group_key is not null
                and j.run_at > :now
        ) as ahead
    ),
    :now
from json_each(:queues) as wanted
left join onefold_queue as q on q.shard = :shard and q.name = wanted.value
