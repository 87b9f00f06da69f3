-- How the jobs of some deliveries stand now, tombstones included. Locks nothing.
select j.id::text, j.state, j.fence
from
    unnest(:shard::smallint[], :id::text[]) as r (shard, id),
    onefold.job as j
where j.shard = r.shard and j.id = r.id::uuid
