-- Give queued holders the content of a new request. A retrying holder starts a new generation. A waiting
-- successor is older than this request, and is dropped.
update onefold_job
set
    kind = r.kind,
    payload = r.payload,
    fingerprint = r.fingerprint,
    priority = r.priority,
    run_at = r.run_at,
    generation = onefold_job.generation + case when onefold_job.attempt > 0 then 1 else 0 end,
    attempt = 0,
    vanished = 0,
    awaiting = null,
    next = null
from (
    select
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as id,
        json_extract(value, '$[2]') as kind,
        json_extract(value, '$[3]') as payload,
        json_extract(value, '$[4]') as fingerprint,
        json_extract(value, '$[5]') as priority,
        json_extract(value, '$[6]') as run_at
    from json_each(:rows)
) as r
where onefold_job.shard = r.shard and onefold_job.id = r.id and onefold_job.state = 0
returning id
