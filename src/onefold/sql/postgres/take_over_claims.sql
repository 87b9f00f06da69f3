-- Take over claims that are free, expired or abandoned, if they have not changed since they were read.
update onefold.claim as c
set
    id = r.id::uuid,
    owner = r.owner::uuid,
    state = r.state,
    takeover = r.takeover,
    fence = greatest(c.fence + 1, (extract(epoch from statement_timestamp()) * 1000000)::bigint),
    created_at = clock.now,
    lease_until = clock.now + r.lease,
    settled_at = case when r.state = 1 then clock.now end,
    expires_at = case when r.state = 1 then clock.now + r.keep end,
    keep = r.keep,
    fingerprint = r.fingerprint,
    result = r.result
from
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
        as clock (now),
    unnest(
        :tenant::text[], :surface::text[], :scope::text[], :key::text[],
        :id::text[], :owner::text[], :state::smallint[], :takeover::smallint[], :lease::bigint[],
        :keep::bigint[], :fingerprint::text[], :result::text[], :seen_fence::bigint[],
        :seen_state::smallint[], :seen_owner::text[]
    ) as r (
        tenant, surface, scope, key, id, owner, state, takeover, lease, keep, fingerprint,
        result, seen_fence, seen_state, seen_owner
    )
where
    c.shard = (:shard::smallint[])[1]
    and c.tenant = r.tenant
    and c.surface = r.surface
    and c.scope = r.scope
    and c.key = r.key
    and c.fence = r.seen_fence
    and c.state = r.seen_state
    and c.owner = r.seen_owner::uuid
returning c.owner::text, c.fence, c.lease_until
