-- The successors of these jobs have become jobs.
update onefold.job as j
set next = null
where j.shard = (:shard::smallint[])[1] and j.id = any((:id::text[])::uuid[])
