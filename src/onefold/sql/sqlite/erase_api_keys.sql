-- Revoke all API keys of a tenant, and remove their names. The rows stay: a server that had a key never
-- accepts callers without one again.
update onefold_api_key
set revoked_at = coalesce(revoked_at, :now), name = ''
where shard = :shard and tenant = :tenant and (revoked_at is null or name <> '')
returning id
