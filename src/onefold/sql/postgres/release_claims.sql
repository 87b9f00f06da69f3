-- Release keys without a result. The row stays for a day, so that its fence never decreases. A lock can
-- be released only before the end of its lease (:strict).
update onefold.claim as c
set
    state = 2,
    lease_until = null,
    fingerprint = null,
    expires_at = clock.now + 86400000000
from
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
        as clock (now),
    unnest(
        :tenant::text[], :surface::text[], :scope::text[], :key::text[],
        :owner::text[], :fence::bigint[]
    ) as r (tenant, surface, scope, key, owner, fence)
where
    c.shard = (:shard::smallint[])[1]
    and c.tenant = r.tenant
    and c.surface = r.surface
    and c.scope = r.scope
    and c.key = r.key
    and c.state = 0
    and c.fence = r.fence
    and c.owner = r.owner::uuid
    and (not :strict::boolean or c.lease_until is null or c.lease_until > clock.now)
returning c.owner::text
