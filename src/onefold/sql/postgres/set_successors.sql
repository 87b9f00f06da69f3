-- Leave the newest whole request with a running holder; it becomes a job when the holder ends.
update onefold.job as j
set next = r.next
from unnest(:id::text[], :next::text[]) as r (id, next)
where
    j.shard = (:shard::smallint[])[1]
    and j.id = any((:id::text[])::uuid[])
    -- As text: by the array alone the rows are looked up, whatever the planner thinks of the join.
    and j.id::text = r.id
    and j.state = 1
returning j.id::text
