-- Take a chore for :every microseconds, unless another worker has it.
insert into onefold_claim (
    shard, tenant, surface, scope, key, id, owner, state, takeover, fence, created_at, lease_until
)
values (:shard, '', 'chore', '', :chore, :owner, :owner, 0, 0, :now, :now, :now + :every)
on conflict (shard, tenant, surface, scope, key) do update
set
    owner = excluded.owner,
    fence = max(onefold_claim.fence + 1, excluded.fence),
    lease_until = excluded.lease_until
where onefold_claim.lease_until <= excluded.created_at
returning key
