-- For an operator: free (or settle) a key in any state, and invalidate the fence of its holder. An
-- expired key counts as absent, also before a sweep, except a publish key whose job has not ended.
update onefold.claim as c
set
    state = r.state,
    fence = greatest(c.fence + 1, (extract(epoch from statement_timestamp()) * 1000000)::bigint),
    lease_until = null,
    fingerprint = case when r.state = 1 then c.fingerprint end,
    settled_at = case when r.state = 1 then clock.now end,
    expires_at = case when r.state = 1 then clock.now + c.keep else clock.now + 86400000000 end,
    result = r.result
from
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
        as clock (now),
    unnest(
        :tenant::text[], :surface::text[], :scope::text[], :key::text[],
        :state::smallint[], :result::text[], :seen_fence::bigint[]
    ) as r (tenant, surface, scope, key, state, result, seen_fence)
where
    c.shard = (:shard::smallint[])[1]
    and c.tenant = r.tenant
    and c.surface = r.surface
    and c.scope = r.scope
    and c.key = r.key
    and c.state <> 2
    and (c.state = 0 or c.expires_at is null or c.expires_at > clock.now or c.surface = 'publish')
    and (r.seen_fence is null or (c.fence = r.seen_fence and c.state = 0))
returning c.fence
