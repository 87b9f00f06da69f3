-- The first due jobs without a group, of a queue with limits; at most :limit of each priority. It visits
-- the priorities one by one, as ready_priorities does.
with recursive lane (priority) as (
    select min(priority)
    from onefold_job
    where shard = :shard and queue = :queue and state = 0 and group_key is null
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
select head.priority, head.run_at, head.id, head.shard, null
from lane
cross join onefold_job as head
    on head.shard = :shard
    and head.id in (
        select j.id
        from onefold_job as j
        where
            j.shard = :shard
            and j.queue = :queue
            and j.state = 0
            and j.group_key is null
            and j.priority = lane.priority
            and j.run_at <= :now
            and (j.expires_at is null or j.expires_at > :now)
            and j.kind not in (select u.value from json_each(:unknown) as u)
        order by j.run_at, j.id
        limit :limit
    )
where lane.priority is not null
