-- Store the result of a claim whose fence is still valid.
update onefold_claim
set
    state = 1, lease_until = null, settled_at = :now, expires_at = :now + keep, result = :result
where
    shard = :shard
    and tenant = :tenant
    and surface = :surface
    and scope = :scope
    and key = :key
    and state = 0
    and fence = :fence
    and owner = :owner
returning owner
