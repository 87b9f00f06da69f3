-- Remove the folded counts of the duplicates of jobs that are gone.
delete from onefold.duplicate_tally as t
where t.shard = (:shard::smallint[])[1] and t.job_id = any((:id::text[])::uuid[])
