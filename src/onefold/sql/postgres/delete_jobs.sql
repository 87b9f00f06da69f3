-- Delete jobs, and with them the keys that they hold.
delete from onefold.job as j
where j.shard = (:shard::smallint[])[1] and j.id = any((:id::text[])::uuid[])
returning j.id::text, j.tenant
