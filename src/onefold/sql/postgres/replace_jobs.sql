-- Give queued holders the content of a new request. The rows are locked already. A retrying holder
-- starts a new generation. A waiting successor is older than this request, and is dropped.
update onefold.job as j
set
    kind = r.kind,
    payload = r.payload,
    fingerprint = r.fingerprint,
    priority = r.priority,
    run_at = r.run_at,
    generation = j.generation + case when j.attempt > 0 then 1 else 0 end,
    attempt = 0,
    vanished = 0,
    awaiting = null,
    next = null
from unnest(
    :id::text[], :kind::text[], :payload::text[], :fingerprint::text[],
    :priority::smallint[], :run_at::bigint[]
) as r (id, kind, payload, fingerprint, priority, run_at)
where
    j.shard = (:shard::smallint[])[1]
    and j.id = any((:id::text[])::uuid[])
    -- As text, so that the planner finds the rows by the array, and not by the join.
    and j.id::text = r.id
    and j.state = 0
returning j.id::text
