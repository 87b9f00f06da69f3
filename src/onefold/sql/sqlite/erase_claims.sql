-- Remove a tenant's claims and the answers stored with them: all, or those under one key.
delete from onefold_claim
where shard = :shard and tenant = :tenant and (:key is null or key = :key)
returning surface, result
