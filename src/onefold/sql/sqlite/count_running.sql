-- The number of running jobs of a queue, counted up to the limit.
select count(*)
from (
    select 1
    from onefold_job as j
    where j.shard = :shard and j.queue = :queue and j.state = 1
    limit :most
) as running
