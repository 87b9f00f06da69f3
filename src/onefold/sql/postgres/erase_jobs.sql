-- Delete the jobs of a tenant: all, or those with one unique key.
delete from onefold.job as j
where
    j.shard = :shard::smallint
    and j.tenant = :tenant::text
    and (:key::text is null or j.unique_key = :key::text)
returning j.id::text, j.queue, j.group_key
