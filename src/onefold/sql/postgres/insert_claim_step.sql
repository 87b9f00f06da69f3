-- Begin a step of a claim whose fence is still valid, or store a step that has ended. A step that exists
-- already is not returned. The claim's row has a shared lock until the commit: no attempt can take the
-- claim over meanwhile, and concurrent steps do not wait for each other.
with parent as materialized (
    select p.shard, p.tenant
    from onefold.claim as p
    where
        p.shard = :shard::smallint
        and p.tenant = :tenant::text
        and p.surface = :surface::text
        and p.scope = :scope::text
        and p.key = :key::text
        and p.state = 0
        and p.fence = :fence::bigint
        and p.owner = :owner::text::uuid
    for share of p
)
insert into onefold.claim (
    shard, tenant, surface, scope, key, id, owner, state, takeover, fence, created_at, settled_at,
    fingerprint, result
)
select
    p.shard, p.tenant, 'step', :steps::text, :step::text, :step_owner::text::uuid,
    :step_owner::text::uuid, :state::smallint, :takeover::smallint, :fence::bigint, clock.now,
    case when :state::smallint = 1 then clock.now end, :fingerprint::text, :result::text
from
    parent as p,
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
        as clock (now)
on conflict do nothing
returning
    key, owner::text, state, fence, fingerprint, takeover, created_at, settled_at, result
