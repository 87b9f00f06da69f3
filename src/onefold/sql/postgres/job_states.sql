-- The states of jobs by id, tombstones included. Uses the primary key.
select j.id::text, j.state
from onefold.job as j
where j.shard = (:shard::smallint[])[1] and j.id = any((:id::text[])::uuid[])
