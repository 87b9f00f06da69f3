-- Store one publish key, which stands for its job. A key that exists already is not changed. The fence
-- starts at the clock, as that of every claim.
insert into onefold_claim (
    shard, tenant, surface, scope, key, id, owner, state, takeover, fence, created_at, settled_at,
    expires_at, keep, fingerprint, result
)
values (
    :shard, :tenant, 'publish', :scope, :key, :id, :id, 1, 0,
    cast((julianday('now') - 2440587.5) * 86400000000 as integer), :now, :now, :now + :keep, :keep,
    :fingerprint, :id
)
on conflict do nothing
