-- Remove a tenant's claims and the answers stored with them: all, or those under one key.
delete from onefold.claim as c
where
    c.shard = :shard::smallint
    and c.tenant = :tenant::text
    and (:key::text is null or c.key = :key::text)
returning c.surface, c.result
