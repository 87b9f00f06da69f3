-- Remove jobs, and with them the keys they hold.
delete from onefold.job as j
using unnest(:shard::smallint[], :id::text[]) as r (shard, id)
where j.shard = r.shard and j.id = r.id::uuid
returning j.id::text
