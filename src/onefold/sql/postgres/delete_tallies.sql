-- Delete the tallies of the duplicates of deleted jobs.
delete from onefold.duplicate_tally as t
where t.shard = (:shard::smallint[])[1] and t.job_id = any((:id::text[])::uuid[])
