-- Queued jobs that have expired. Uses onefold_job_expiring.
select
    j.id, j.shard, j.state, j.attempt, j.max_attempts, j.fence, j.vanished,
    j.options, j.next, j.stripped, j.kind, j.queue, j.worker, j.taken_at,
    j.ended_at, j.tenant, :now, j.awaiting, j.awaiting_dead,
    case when j.awaiting = j.fence then j.pushed end
from onefold_job as j
where j.shard = :shard and j.state = 0 and j.expires_at <= :now
order by j.expires_at
limit :limit
