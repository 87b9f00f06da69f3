-- Delete the history of deleted jobs.
delete from onefold.attempt as a
where a.shard = (:shard::smallint[])[1] and a.job_id = any((:id::text[])::uuid[])
