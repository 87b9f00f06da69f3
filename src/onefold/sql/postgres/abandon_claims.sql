-- End leases at once. The outcome is unknown. The given takeover, or else the stored one, decides what
-- the next attempt does.
update onefold.claim as c
set
    takeover = coalesce(r.takeover, c.takeover),
    lease_until = clock.now
from
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
        as clock (now),
    unnest(
        :tenant::text[], :surface::text[], :scope::text[], :key::text[],
        :owner::text[], :fence::bigint[], :takeover::smallint[]
    ) as r (tenant, surface, scope, key, owner, fence, takeover)
where
    c.shard = (:shard::smallint[])[1]
    and c.tenant = r.tenant
    and c.surface = r.surface
    and c.scope = r.scope
    and c.key = r.key
    and c.state = 0
    and c.fence = r.fence
    and c.owner = r.owner::uuid
returning c.owner::text
