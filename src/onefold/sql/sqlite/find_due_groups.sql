-- Jobs of all groups that are due: the longest due and the latest. Where these are few, they are all
-- there is; where they are many, the latest are seldom those of a group with a heap of older ones.
-- So many as PostgreSQL has to be told in its text.
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
