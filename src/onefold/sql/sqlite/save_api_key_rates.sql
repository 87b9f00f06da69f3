-- Store the buckets of some API keys.
update onefold_api_key
set full_at = r.full_at
from (
    select
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as id,
        json_extract(value, '$[2]') as full_at
    from json_each(:rows)
) as r
where onefold_api_key.shard = r.shard and onefold_api_key.id = r.id
