-- How many jobs of a queue are running, counted as far as it matters.
select count(*)
from (
    select 1
    from onefold_job as j
    where j.shard = :shard and j.queue = :queue and j.state = 1
    limit :most
) as running
