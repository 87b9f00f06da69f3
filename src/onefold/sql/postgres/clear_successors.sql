-- Clear the successors of these jobs, which are stored as jobs now.
update onefold.job as j
set next = null
where j.shard = (:shard::smallint[])[1] and j.id = any((:id::text[])::uuid[])
