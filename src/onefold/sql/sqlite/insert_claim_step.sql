-- Begin a step of a claim whose fence is still valid, or store a step that has ended. A step that exists
-- already is not returned.
insert into onefold_claim (
    shard, tenant, surface, scope, key, id, owner, state, takeover, fence, created_at, settled_at,
    fingerprint, result
)
select
    p.shard, p.tenant, 'step', :steps, :step, :step_owner, :step_owner, :state, :takeover, :fence,
    :now, case when :state = 1 then :now end, :fingerprint, :result
from onefold_claim as p
where
    p.shard = :shard
    and p.tenant = :tenant
    and p.surface = :surface
    and p.scope = :scope
    and p.key = :key
    and p.state = 0
    and p.fence = :fence
    and p.owner = :owner
on conflict do nothing
returning key, owner, state, fence, fingerprint, takeover, created_at, settled_at, result
