-- Delete the claims of a tenant, with the stored results: all, or those with one key, of one surface or
-- of one scope. A scope may consist of a principal, a line feed and a route: an erase by principal
-- matches it on every route. The scopes of Onefold's own surfaces never match.
delete from onefold.claim as c
where
    c.shard = :shard::smallint
    and c.tenant = :tenant::text
    and (:key::text is null or c.key = :key::text)
    and (:surface::text is null or c.surface = :surface::text)
    and (
        :scope::text is null
        or (
            (c.scope = :scope::text or starts_with(c.scope, :scope::text || chr(10)))
            and c.surface not in ('chore', 'cron', 'lock', 'publish', 'step')
        )
    )
returning c.surface, c.result, c.scope, c.key
