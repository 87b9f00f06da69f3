-- The first due jobs of some groups, at most :most of each group and priority. It visits the priorities
-- one by one, and never reads jobs that are scheduled ahead at a better priority.
with recursive lane (group_key, priority) as (
    select
        wanted.value,
        (
            select min(j.priority)
            from onefold_job as j
            where
                j.shard = :shard
                and j.queue = :queue
                and j.state = 0
                and j.group_key = wanted.value
        )
    from json_each(:groups) as wanted
    union all
    select
        lane.group_key,
        (
            select min(j.priority)
            from onefold_job as j
            where
                j.shard = :shard
                and j.queue = :queue
                and j.state = 0
                and j.group_key = lane.group_key
                and j.priority > lane.priority
        )
    from lane
    where lane.priority is not null
)
select head.priority, head.run_at, head.id, head.shard, head.group_key
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
            and j.group_key = lane.group_key
            and j.priority = lane.priority
            and j.run_at <= :now
            and (j.expires_at is null or j.expires_at > :now)
            and j.kind not in (select u.value from json_each(:unknown) as u)
        order by j.run_at, j.id
        limit :most
    )
where lane.priority is not null
