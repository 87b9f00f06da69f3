-- Remove everything a tenant's jobs say: all of them, or those under one unique key.
delete from onefold_job
where shard = :shard and tenant = :tenant and (:key is null or unique_key = :key)
returning id
