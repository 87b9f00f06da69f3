-- The buckets of a queue (group '') and of some of its groups. A missing bucket is full.
select r.group_key, r.full_at
from onefold.rate as r
where
    r.shard = :shard::smallint and r.queue = :queue::text and r.group_key = any(:groups::text[])
