-- Remove the notes of the duplicates of jobs that are gone.
delete from onefold.duplicate as d
where d.shard = (:shard::smallint[])[1] and d.job_id = any((:id::text[])::uuid[])
