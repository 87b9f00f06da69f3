-- The number of running jobs of each of these groups, counted up to the limit.
select
    g.key,
    (
        select count(*)
        from (
            select 1
            from onefold.job as j
            where
                j.shard = :shard::smallint
                and j.queue = :queue::text
                and j.state = 1
                and j.group_key = g.key
            limit :most::integer
        ) as running
    )
from unnest(:groups::text[]) as g (key)
