-- Store the buckets of some API keys.
update onefold.api_key as k
set full_at = r.full_at
from unnest(:id::text[], :full_at::bigint[]) as r (id, full_at)
where k.shard = (:shard::smallint[])[1] and k.id = r.id
