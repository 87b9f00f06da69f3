-- Store how deliveries have ended. A delivery that lost its lease and finished afterwards is stored
-- once, with its last outcome.
insert into onefold.attempt (
    shard, job_id, fence, attempt, outcome, worker, started_at, ended_at, reason, error
)
select
    r.shard, r.job_id::uuid, r.fence, r.attempt, r.outcome, r.worker, r.started_at, r.ended_at,
    r.reason, r.error
from unnest(
    :shard::smallint[], :job_id::text[], :fence::bigint[], :attempt::smallint[], :outcome::text[],
    :worker::text[], :started_at::bigint[], :ended_at::bigint[], :reason::text[], :error::text[]
) as r (
    shard, job_id, fence, attempt, outcome, worker, started_at, ended_at, reason, error
)
on conflict (shard, job_id, fence) do update
set outcome = excluded.outcome,
    ended_at = excluded.ended_at,
    reason = excluded.reason,
    error = excluded.error
