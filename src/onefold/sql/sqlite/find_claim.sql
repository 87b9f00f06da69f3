-- The claim of a key. Uses the primary key.
select
    id, owner, state, fence, fingerprint, takeover, lease_until, expires_at, result, :now,
    created_at
from onefold_claim
where
    shard = :shard
    and tenant = :tenant
    and surface = :surface
    and scope = :scope
    and key = :key
