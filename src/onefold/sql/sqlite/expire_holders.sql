-- Bury queued holders that have expired, before a rescue does: an enqueue must not return a job that
-- will never run.
update onefold_job
set
    state = 3,
    vanished = 0,
    not_before = null,
    reason = 'expired',
    ended_at = :at,
    keep_until = :at + coalesce(json_extract(onefold_job.options, '$.keep.dead'), :keep),
    -- A successor gets the key.
    yielded = onefold_job.yielded or onefold_job.next is not null
from (
    select
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as id
    from json_each(:rows)
) as r
where
    onefold_job.shard = r.shard
    and onefold_job.id = r.id
    and onefold_job.state = 0
    and onefold_job.expires_at <= :at
returning id, next
