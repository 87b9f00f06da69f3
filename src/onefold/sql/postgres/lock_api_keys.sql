-- Lock some API keys, and read their buckets.
select
    k.id, k.rate_count, k.rate_period, k.full_at,
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
from onefold.api_key as k
where
    k.shard = (:shard::smallint[])[1]
    and k.id = any(:id::text[])
    and k.rate_count is not null
order by k.id
for no key update
