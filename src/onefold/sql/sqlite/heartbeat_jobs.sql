-- Extend the leases of deliveries whose fence is still valid. A delivery that waits for its ack has its
-- own lease, which a late heartbeat must not shorten.
update onefold_job
set lease_until = case
    when onefold_job.awaiting = onefold_job.fence then max(onefold_job.lease_until, :now + :lease)
    else :now + :lease
end
from (
    select
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as id,
        json_extract(value, '$[2]') as fence
    from json_each(:rows)
) as r
where
    onefold_job.shard = r.shard
    and onefold_job.id = r.id
    and onefold_job.state = 1
    and onefold_job.fence = r.fence
returning id, fence, lease_until
