-- Store the result of a claim whose fence is still valid, as settle_claims does.
update onefold.claim as c
set
    state = 1,
    lease_until = null,
    settled_at = clock.now,
    expires_at = clock.now + c.keep,
    result = :result::text
from
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
        as clock (now)
where
    c.shard = :shard::smallint
    and c.tenant = :tenant::text
    and c.surface = :surface::text
    and c.scope = :scope::text
    and c.key = :key::text
    and c.state = 0
    and c.fence = :fence::bigint
    and c.owner = :owner::uuid
returning c.owner::text
