-- API keys by id, for callers that have presented them. Uses the primary key.
select
    k.id, k.tenant, k.name, k.scopes, k.rate_count, k.rate_period, k.created_at, k.expires_at,
    k.revoked_at, k.digest, :now
from (
    select
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as id
    from json_each(:rows)
) as r
cross join onefold_api_key as k on k.shard = r.shard and k.id = r.id
