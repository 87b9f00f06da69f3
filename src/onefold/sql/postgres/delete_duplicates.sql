-- Remove the notes of the duplicates of jobs that are gone.
delete from onefold.duplicate as d
using unnest(:shard::smallint[], :id::text[]) as r (shard, id)
where d.shard = r.shard and d.job_id = r.id::uuid
