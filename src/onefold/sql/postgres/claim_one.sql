-- Claim a key, or find the claim that exists, or tell that an open transaction has the key. It looks first,
-- so a key with a claim costs no write and no lock; the unique index still decides. At other isolation
-- levels than READ COMMITTED the snapshot may be old: there it only inserts. No row: a rival came after the
-- snapshot, or the level is another one. The advisory locks and the fence are those of insert_claims.
with clock (now) as materialized (
    select coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
),
found as materialized (
    select
        c.id, c.owner, c.state, c.fence, c.fingerprint, c.takeover, c.lease_until, c.expires_at,
        c.result, c.created_at
    from onefold.claim as c
    where
        c.shard = :shard::smallint
        and c.tenant = :tenant::text
        and c.surface = :surface::text
        and c.scope = :scope::text
        and c.key = :key::text
        and current_setting('transaction_isolation') = 'read committed'
),
lock (free) as materialized (
    select
        case
            when exists (select from found) then null
            when :shared::boolean then pg_try_advisory_xact_lock_shared(:lock::bigint)
            else pg_try_advisory_xact_lock(:lock::bigint)
        end
),
won as (
    insert into onefold.claim (
        shard, tenant, surface, scope, key, id, owner, state, takeover, fence, created_at,
        lease_until, keep, fingerprint
    )
    select
        :shard::smallint, :tenant::text, :surface::text, :scope::text, :key::text, :id::uuid,
        :id::uuid, 0, :takeover::smallint,
        (extract(epoch from clock_timestamp()) * 1000000)::bigint, clock.now,
        clock.now + :lease::bigint, :keep::bigint, :fingerprint::text
    from clock, lock
    where lock.free
    on conflict do nothing
    returning id, owner, state, fence, lease_until, created_at
)
select
    'won', won.id::text, won.owner::text, won.state, won.fence, null::text, 0::smallint,
    won.lease_until, null::bigint, null::text, clock.now, won.created_at
from clock, won
union all
select
    'found', found.id::text, found.owner::text, found.state, found.fence, found.fingerprint,
    found.takeover, found.lease_until, found.expires_at, found.result, clock.now, found.created_at
from clock, found
union all
select 'open', null, null, null, null, null, null, null, null, null, clock.now, null
from clock, lock
where not lock.free
