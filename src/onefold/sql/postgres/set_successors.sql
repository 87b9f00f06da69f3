-- Leave the newest whole request with a running holder; it becomes a job when the holder ends.
update onefold.job as j
set next = r.next
from unnest(:shard::smallint[], :id::text[], :next::text[]) as r (shard, id, next)
where j.shard = r.shard and j.id = r.id::uuid and j.state = 1
returning j.id::text
