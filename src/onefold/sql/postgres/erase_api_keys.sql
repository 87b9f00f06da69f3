-- Revoke all API keys of a tenant, and remove their names. The rows stay: a server that had a key never
-- accepts callers without one again.
update onefold.api_key as k
set revoked_at = coalesce(k.revoked_at, clock.now), name = ''
from
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
        as clock (now)
where
    k.shard = :shard::smallint
    and k.tenant = :tenant::text
    and (k.revoked_at is null or k.name <> '')
returning k.id
