-- The groups of a queue that have waiting jobs, after a given one: a skip scan of onefold_job_group.
with recursive member (key) as (
    select min(j.group_key)
    from onefold_job as j
    where
        j.shard = :shard
        and j.queue = :queue
        and j.state = 0
        and j.group_key is not null
        and j.group_key > :after
    union all
    select (
        select min(j.group_key)
        from onefold_job as j
        where
            j.shard = :shard
            and j.queue = :queue
            and j.state = 0
            and j.group_key is not null
            and j.group_key > member.key
    )
    from member
    where member.key is not null
    limit :limit
)
select member.key
from member
where member.key is not null
