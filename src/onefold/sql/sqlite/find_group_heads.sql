-- The oldest waiting job of each of these groups, and whether it is due.
select
    head.priority, head.run_at, head.id, head.shard, head.group_key,
    head.run_at <= :now
    and (head.expires_at is null or head.expires_at > :now)
    and head.kind not in (select u.value from json_each(:unknown) as u)
from json_each(:groups) as g
cross join onefold_job as head
    on head.shard = :shard
    and head.id = (
        select j.id
        from onefold_job as j
        where
            j.shard = :shard
            and j.queue = :queue
            and j.state = 0
            and j.group_key = g.value
        -- The expression of onefold_job_group_order: the order of enqueues.
        order by substr(cast(j.id as text), 1, 13) || substr(cast(j.id as text), 20)
        limit 1
    )
