-- API keys by id, for callers that have presented them. Uses the primary key.
select
    k.id, k.tenant, k.name, k.scopes, k.rate_count, k.rate_period, k.created_at, k.expires_at,
    k.revoked_at, k.digest,
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
from onefold.api_key as k
where k.shard = (:shard::smallint[])[1] and k.id = any(:id::text[])
