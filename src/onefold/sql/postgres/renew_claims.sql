-- Extend leases that have not ended, and shorten none. A claim whose lease has ended must be claimed
-- again.
update onefold.claim as c
set lease_until = greatest(c.lease_until, clock.now + r.lease)
from
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
        as clock (now),
    unnest(
        :tenant::text[], :surface::text[], :scope::text[], :key::text[],
        :owner::text[], :fence::bigint[], :lease::bigint[]
    ) as r (tenant, surface, scope, key, owner, fence, lease)
where
    c.shard = (:shard::smallint[])[1]
    and c.tenant = r.tenant
    and c.surface = r.surface
    and c.scope = r.scope
    and c.key = r.key
    and c.state = 0
    and c.fence = r.fence
    and c.owner = r.owner::uuid
    and c.lease_until > clock.now
returning c.owner::text, c.lease_until
