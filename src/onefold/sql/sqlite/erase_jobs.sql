-- Delete the jobs of a tenant: all, or those with one unique key.
delete from onefold_job
where shard = :shard and tenant = :tenant and (:key is null or unique_key = :key)
returning id, queue, group_key
