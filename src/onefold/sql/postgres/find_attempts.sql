-- The ended deliveries of one job, the newest last. Uses the primary key.
select
    a.attempt, a.fence, a.worker, a.started_at, a.ended_at, a.outcome, a.reason, a.error
from onefold.attempt as a
where a.shard = :shard::smallint and a.job_id = :id::text::uuid
order by a.fence
