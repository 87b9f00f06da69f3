-- Ended jobs whose retention is over, and whether the window of their key is not. Uses onefold_job_keep.
select j.id, not j.yielded and j.unique_until is not null and j.unique_until > :now
from onefold_job as j
where j.shard = :shard and j.keep_until <= :now
order by j.keep_until
limit :limit
