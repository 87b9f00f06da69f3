-- The states of jobs by id, tombstones included. Served by the primary key.
select j.id::text, j.state
from
    unnest(:shard::smallint[], :id::text[]) as r (shard, id),
    onefold.job as j
where j.shard = r.shard and j.id = r.id::uuid
