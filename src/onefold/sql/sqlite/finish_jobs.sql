-- Complete deliveries whose fence is still valid.
update onefold_job
set
    state = 2,
    not_before = null,
    vanished = 0,
    lease_until = null,
    result = r.result,
    ended_at = :now,
    keep_until = :now + coalesce(json_extract(onefold_job.options, '$.keep.completed'), :keep),
    -- A successor gets the key.
    yielded = onefold_job.yielded or onefold_job.next is not null
from (
    select
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as id,
        json_extract(value, '$[2]') as fence,
        json_extract(value, '$[3]') as result
    from json_each(:rows)
) as r
where
    onefold_job.shard = r.shard
    and onefold_job.id = r.id
    and onefold_job.fence = r.fence
    -- Running; or its lease or ack has timed out (it was not handed back), and it was not taken since.
    and (
        onefold_job.state = 1
        or (onefold_job.state = 0 and onefold_job.vanished > 0 and onefold_job.not_before is not null)
        or (onefold_job.state = 0 and onefold_job.awaiting = onefold_job.fence)
    )
returning id, fence, next, keep_until <= :now
