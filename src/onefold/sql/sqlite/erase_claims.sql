-- Delete the claims of a tenant, with the stored results: all, or those with one key, of one surface or
-- of one scope. A scope may consist of a principal, a line feed and a route: an erase by principal
-- matches it on every route. The scopes of Onefold's own surfaces never match.
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
