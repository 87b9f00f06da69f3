-- Mark deliveries that were pushed as waiting for their ack, with a lease of the given length.
update onefold_job
set
    awaiting = onefold_job.fence,
    awaiting_dead = r.dead,
    pushed = r.pushed,
    lease_until = :now + r.lease
from (
    select
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as id,
        json_extract(value, '$[2]') as fence,
        json_extract(value, '$[3]') as lease,
        json_extract(value, '$[4]') as dead,
        json_extract(value, '$[5]') as pushed
    from json_each(:rows)
) as r
where
    onefold_job.shard = r.shard
    and onefold_job.id = r.id
    and onefold_job.state = 1
    and onefold_job.fence = r.fence
returning id, fence
