-- Claim a key. No row: it has a claim already. There is one writer, so nothing else can be true.
insert into onefold_claim (
    shard, tenant, surface, scope, key, id, owner, state, takeover, fence, created_at, lease_until,
    keep, fingerprint
)
values (
    :shard, :tenant, :surface, :scope, :key, :id, :id, 0, :takeover, :clock, :now, :now + :lease,
    :keep, :fingerprint
)
on conflict do nothing
returning
    'won', id, owner, state, fence, null, takeover, lease_until, null, null, created_at, created_at
