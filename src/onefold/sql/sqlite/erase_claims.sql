-- Remove a tenant's claims and the answers stored with them: all, or those under one key, of one surface
-- or of one scope. What scopes mean on our own surfaces is no caller's business.
delete from onefold_claim
where
    shard = :shard
    and tenant = :tenant
    and (:key is null or key = :key)
    and (:surface is null or surface = :surface)
    and (
        :scope is null
        or (scope = :scope and surface not in ('cron', 'lock', 'publish', 'step'))
    )
returning surface, result, scope, key
