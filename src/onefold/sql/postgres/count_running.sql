-- How many jobs of a queue are running, counted as far as it matters.
select count(*)
from (
    select 1
    from onefold.job as j
    where j.shard = :shard::smallint and j.queue = :queue::text and j.state = 1
    limit :most::integer
) as running
