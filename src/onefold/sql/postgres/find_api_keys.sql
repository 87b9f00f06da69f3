-- API keys for an operator: all, or those of a tenant.
select
    k.id, k.tenant, k.name, k.scopes, k.rate_count, k.rate_period, k.created_at, k.expires_at,
    k.revoked_at
from onefold.api_key as k
where k.shard = :shard::smallint and (:tenant::text is null or k.tenant = :tenant::text)
