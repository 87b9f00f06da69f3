-- Begin a step of a delivery whose fence is still valid, or store a step that has ended. A step that
-- exists already is not returned.
insert into onefold_claim (
    shard, tenant, surface, scope, key, id, owner, state, takeover, fence, created_at, settled_at,
    fingerprint, result
)
select
    j.shard, j.tenant, 'step', :job, :key, :owner, :owner, :state, :takeover, :fence, :now,
    case when :state = 1 then :now end, :fingerprint, :result
from onefold_job as j
where j.shard = :shard and j.id = :job and j.fence = :fence and (j.state = 1 or not :running)
on conflict do nothing
returning key, owner, state, fence, fingerprint, takeover, created_at, settled_at, result
