-- The priorities at which a queue has a due job, best first. A skip scan of onefold_job_ready: it never
-- reads jobs that are scheduled ahead at a better priority.
with recursive lane (priority) as (
    select min(priority)
    from onefold_job
    where
        shard = :shard
        and queue = :queue
        and state = 0
        and group_key is null
        -- Not from paused, limited and ordered queues, which need a take that reads their settings.
        and not exists (
            select 1
            from onefold_queue as q
            where q.shard = :shard and q.name = :queue and (q.paused or q.controlled)
        )
    union all
    select (
        select min(j.priority)
        from onefold_job as j
        where
            j.shard = :shard
            and j.queue = :queue
            and j.state = 0
            and j.group_key is null
            and j.priority > lane.priority
    )
    from lane
    where lane.priority is not null
)
select lane.priority
from lane
where exists (
    select 1
    from onefold_job as j
    where
        j.shard = :shard
        and j.queue = :queue
        and j.state = 0
        and j.group_key is null
        and j.priority = lane.priority
        and j.run_at <= :now
)
