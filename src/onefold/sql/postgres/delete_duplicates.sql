-- Delete the duplicates that were logged for deleted jobs.
delete from onefold.duplicate as d
where d.shard = (:shard::smallint[])[1] and d.job_id = any((:id::text[])::uuid[])
