-- Store the newest request with a running holder. It becomes a job when the holder ends.
update onefold.job as j
set next = r.next
from unnest(:id::text[], :next::text[]) as r (id, next)
where
    j.shard = (:shard::smallint[])[1]
    and j.id = any((:id::text[])::uuid[])
    -- As text, so that the planner finds the rows by the array, and not by the join.
    and j.id::text = r.id
    and j.state = 1
returning j.id::text
