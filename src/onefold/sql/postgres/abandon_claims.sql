-- Give a claim up, though nobody knows what became of its work: nobody runs it again unasked.
update onefold.claim as c
set
    takeover = 2,
    lease_until = clock.now
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
returning c.owner::text
