-- The successors of these jobs have become jobs.
update onefold.job as j
set next = null
from unnest(:shard::smallint[], :id::text[]) as r (shard, id)
where j.shard = r.shard and j.id = r.id::uuid
