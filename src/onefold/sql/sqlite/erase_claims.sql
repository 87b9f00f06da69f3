-- Remove a tenant's claims and the answers stored with them: all, or those under one key, of one surface
-- or of one scope. A scope may go on after a line feed, with what it is for: what belongs to the
-- principal belongs to it on every route. What scopes mean on our own surfaces is no caller's business.
delete from onefold_claim
where
    shard = :shard
    and tenant = :tenant
    and (:key is null or key = :key)
    and (:surface is null or surface = :surface)
    and (
        :scope is null
        or (
            (scope = :scope or substr(scope, 1, length(:scope) + 1) = :scope || char(10))
            and surface not in ('chore', 'cron', 'lock', 'publish', 'step')
        )
    )
returning surface, result, scope, key
