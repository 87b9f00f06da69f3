-- The job at which a look at jobs between two ids ends, and the next one; one or none if there are fewer
-- jobs. The operation changes it as `find_jobs`.
select j.id::text
from onefold.job as j
where
    j.shard = :shard::smallint
    and j.id > :after::text::uuid
    and j.id < :before::text::uuid
order by j.id
limit 2 offset :looked::integer - 1
