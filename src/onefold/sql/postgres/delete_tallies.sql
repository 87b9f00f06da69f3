-- Remove the folded counts of the duplicates of jobs that are gone.
delete from onefold.duplicate_tally as t
using unnest(:shard::smallint[], :id::text[]) as r (shard, id)
where t.shard = r.shard and t.job_id = r.id::uuid
