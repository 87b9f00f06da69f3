-- Store the result of claims whose fence is still valid.
update onefold.claim as c
set
    state = 1,
    lease_until = null,
    settled_at = clock.now,
    expires_at = clock.now + c.keep,
    result = r.result
from
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
        as clock (now),
    unnest(
        :tenant::text[], :surface::text[], :scope::text[], :key::text[],
        :owner::text[], :fence::bigint[], :result::text[]
    ) as r (tenant, surface, scope, key, owner, fence, result)
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
