-- Delete claims that still have the owner that was read.
delete from onefold.claim as c
using unnest(
    :tenant::text[], :surface::text[], :scope::text[], :key::text[],
    :owner::text[]
) as r (tenant, surface, scope, key, owner)
where
    c.shard = (:shard::smallint[])[1]
    and c.tenant = r.tenant
    and c.surface = r.surface
    and c.scope = r.scope
    and c.key = r.key
    and c.owner = r.owner::uuid
returning c.owner::text
