-- The number of running jobs of a queue, counted up to the limit.
select count(*)
from (
    select 1
    from onefold.job as j
    where j.shard = :shard::smallint and j.queue = :queue::text and j.state = 1
    limit :most::integer
) as running
