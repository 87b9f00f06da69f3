-- API keys for an operator: all, or those of a tenant.
select
    id, tenant, name, scopes, rate_count, rate_period, created_at, expires_at, revoked_at
from onefold_api_key
where shard = :shard and (:tenant is null or tenant = :tenant)
