-- Revoke an API key, at once and permanently.
update onefold.api_key as k
set revoked_at = clock.now
from
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
        as clock (now)
where k.shard = :shard::smallint and k.id = :id::text and k.revoked_at is null
returning k.id
