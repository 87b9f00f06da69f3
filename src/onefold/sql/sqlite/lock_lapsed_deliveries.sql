-- Running jobs whose lease has ended. Reads the running rows (onefold_job_running): their number is
-- limited by the number of workers.
select
    j.id, j.shard, j.state, j.attempt, j.max_attempts, j.fence, j.vanished,
    j.options, j.next, j.stripped, j.kind, j.queue, j.worker, j.taken_at,
    j.ended_at, j.tenant, :now, j.awaiting, j.awaiting_dead,
    case when j.awaiting = j.fence then j.pushed end
from onefold_job as j
where j.shard = :shard and j.state = 1 and j.lease_until <= :now
order by j.queue, j.group_key, j.id
limit :limit
