-- The queues of jobs by id, tombstones included. Uses the primary key.
select j.id::text, j.queue
from onefold.job as j
where j.shard = (:shard::smallint[])[1] and j.id = any((:id::text[])::uuid[])
