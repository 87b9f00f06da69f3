-- Remove a tenant's claims and the answers stored with them: all, or those under one key, of one surface
-- or of one scope. A scope may go on after a line feed, with what it is for: what belongs to the
-- principal belongs to it on every route. What scopes mean on our own surfaces is no caller's business.
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
