-- Store how deliveries have ended. A delivery that lost its lease and finished afterwards is stored
-- once, with its last outcome.
insert into onefold_attempt (
    shard, job_id, fence, attempt, outcome, worker, started_at, ended_at, reason, error
)
select
    r.shard, r.job_id, r.fence, r.attempt, r.outcome, r.worker, r.started_at, r.ended_at,
    r.reason, r.error
from (
    select
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as job_id,
        json_extract(value, '$[2]') as fence,
        json_extract(value, '$[3]') as attempt,
        json_extract(value, '$[4]') as outcome,
        json_extract(value, '$[5]') as worker,
        json_extract(value, '$[6]') as started_at,
        json_extract(value, '$[7]') as ended_at,
        json_extract(value, '$[8]') as reason,
        json_extract(value, '$[9]') as error
    from json_each(:rows)
) as r
where true
on conflict (shard, job_id, fence) do update
set outcome = excluded.outcome,
    ended_at = excluded.ended_at,
    reason = excluded.reason,
    error = excluded.error
