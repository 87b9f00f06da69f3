-- The ended deliveries of one job, the newest last. Uses the primary key.
select
    a.attempt, a.fence, a.worker, a.started_at, a.ended_at, a.outcome, a.reason, a.error
from onefold_attempt as a
where a.shard = :shard and a.job_id = :id
order by a.fence
