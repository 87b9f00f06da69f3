-- Claim keys. A key that exists already, or whose advisory lock another transaction has, is not
-- returned. A claim in a caller's transaction holds the lock until the end of that transaction; other
-- claims share the lock. So a claim never waits for an open transaction of a caller. The fence starts at
-- the clock, so that it still grows if a row was swept and its key is claimed again.
insert into onefold.claim (
    shard, tenant, surface, scope, key, id, owner, state, takeover, fence, created_at, lease_until,
    settled_at, expires_at, keep, fingerprint, result
)
select
    r.shard, r.tenant, r.surface, r.scope, r.key, r.id::uuid, r.id::uuid, r.state, r.takeover,
    (extract(epoch from clock_timestamp()) * 1000000)::bigint, clock.now, clock.now + r.lease,
    case when r.state = 1 then clock.now end, case when r.state = 1 then clock.now + r.keep end,
    r.keep, r.fingerprint, r.result
from
    (select coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint))
        as clock (now),
    unnest(
        :shard::smallint[], :tenant::text[], :surface::text[], :scope::text[], :key::text[],
        :id::text[], :state::smallint[], :takeover::smallint[], :lease::bigint[], :keep::bigint[],
        :fingerprint::text[], :result::text[], :lock::bigint[]
    ) with ordinality as r (
        shard, tenant, surface, scope, key, id, state, takeover, lease, keep, fingerprint, result,
        lock, place
    )
where
    case
        when r.lock is null then true
        when :shared::boolean then pg_try_advisory_xact_lock_shared(r.lock)
        else pg_try_advisory_xact_lock(r.lock)
    end
order by r.place
on conflict do nothing
returning owner::text, fence, lease_until
