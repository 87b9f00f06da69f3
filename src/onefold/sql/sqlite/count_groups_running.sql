-- The number of running jobs of each of these groups, counted up to the limit.
select
    g.value,
    (
        select count(*)
        from (
            select 1
            from onefold_job as j
            where
                j.shard = :shard
                and j.queue = :queue
                and j.state = 1
                and j.group_key = g.value
            limit :most
        ) as running
    )
from json_each(:groups) as g
