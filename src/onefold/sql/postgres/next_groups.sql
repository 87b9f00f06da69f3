-- The groups of a queue that have waiting jobs, after a given one: a skip scan of job_group.
with recursive member (key) as (
    (
        select j.group_key
        from onefold.job as j
        where
            j.shard = :shard::smallint
            and j.queue = :queue::text
            and j.state = 0
            and j.group_key is not null
            and j.group_key > :after::text
        order by j.group_key
        limit 1
    )
    union all
    select (
        select j.group_key
        from onefold.job as j
        where
            j.shard = :shard::smallint
            and j.queue = :queue::text
            and j.state = 0
            and j.group_key is not null
            and j.group_key > member.key
        order by j.group_key
        limit 1
    )
    from member
    where member.key is not null
)
select member.key
from member
where member.key is not null
limit :limit::integer
