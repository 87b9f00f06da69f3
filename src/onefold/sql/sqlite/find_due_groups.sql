-- Due jobs of all groups: those that are due longest, and the latest. If there are few due jobs, these
-- are all of them. If there are many, the latest are rarely of a group with many older ones. The number
-- is the one that PostgreSQL's statement has in its text.
select *
from (
    select j.priority, j.run_at, j.id, j.shard, j.group_key
    from onefold_job as j
    where
        j.shard = :shard
        and j.queue = :queue
        and j.state = 0
        and j.group_key is not null
        and j.run_at <= :now
        and (j.expires_at is null or j.expires_at > :now)
        and j.kind not in (select u.value from json_each(:unknown) as u)
    order by j.run_at, j.id
    limit 256
)
union all
select *
from (
    select j.priority, j.run_at, j.id, j.shard, j.group_key
    from onefold_job as j
    where
        j.shard = :shard
        and j.queue = :queue
        and j.state = 0
        and j.group_key is not null
        and j.run_at <= :now
        and (j.expires_at is null or j.expires_at > :now)
        and j.kind not in (select u.value from json_each(:unknown) as u)
    order by j.run_at desc, j.id desc
    limit 256
)
