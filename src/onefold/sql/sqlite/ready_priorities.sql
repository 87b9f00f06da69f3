-- The priorities at which a queue has a job that is due, best first. A skip scan over onefold_job_ready:
-- jobs scheduled ahead at a better priority are never read.
with recursive lane (priority) as (
    select min(priority) from onefold_job where shard = :shard and queue = :queue and state = 0
    union all
    select (
        select min(j.priority)
        from onefold_job as j
        where j.shard = :shard and j.queue = :queue and j.state = 0 and j.priority > lane.priority
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
        and j.priority = lane.priority
        and j.run_at <= :now
)
