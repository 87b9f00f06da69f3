-- The job at which a look at jobs between two ids ends, and the next one; one or none if there are fewer
-- jobs. The operation changes it as `find_jobs`.
select j.id
from onefold_job as j
where
    j.shard = :shard
    and j.id > :after
    and j.id < :before
order by j.id
limit 2 offset :looked - 1
