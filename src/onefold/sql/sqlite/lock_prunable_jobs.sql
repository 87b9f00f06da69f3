-- Finished jobs whose record has been kept long enough, and whether their key is promised for longer.
-- Served by onefold_job_keep.
select j.id, not j.yielded and j.unique_until is not null and j.unique_until > :now
from onefold_job as j
where j.shard = :shard and j.keep_until <= :now
order by j.keep_until
limit :limit
