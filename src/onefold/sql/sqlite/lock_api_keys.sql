-- Read the buckets of some API keys. SQLite has one writer, and needs no lock.
select k.id, k.rate_count, k.rate_period, k.full_at, :now
from (
    select
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as id
    from json_each(:rows)
) as r
cross join onefold_api_key as k on k.shard = r.shard and k.id = r.id
where k.rate_count is not null
