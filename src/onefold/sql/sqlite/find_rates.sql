-- The buckets of a queue (group '') and of some of its groups. A missing bucket is full.
select r.group_key, r.full_at
from json_each(:groups) as g
cross join onefold_rate as r
    on r.shard = :shard and r.queue = :queue and r.group_key = g.value
