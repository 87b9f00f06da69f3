-- Delete the claims of deleted jobs, with any owner.
delete from onefold.claim as c
using unnest(:tenant::text[], :surface::text[], :scope::text[], :key::text[])
    as r (tenant, surface, scope, key)
where
    c.shard = (:shard::smallint[])[1]
    and c.tenant = r.tenant
    and c.surface = r.surface
    and c.scope = r.scope
    and c.key = r.key
