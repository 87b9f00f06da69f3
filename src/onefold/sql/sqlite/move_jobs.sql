-- Write down the steps that lifecycle decided. A final state with a waiting successor hands the key over
-- to it: no final state holds it any more, but a replay asks for it again, and bit 5 remembers for it that
-- the key was held in every state.
update onefold_job
set
    state = r.state,
    attempt = r.attempt,
    vanished = r.vanished,
    run_at = coalesce(r.run_at, onefold_job.run_at),
    not_before = r.not_before,
    reason = r.reason,
    error = coalesce(r.error, onefold_job.error),
    worker = null,
    lease_until = null,
    ended_at = r.ended_at,
    keep_until = r.keep_until,
    expires_at = case when r.replayed then null else onefold_job.expires_at end,
    generation = onefold_job.generation + r.generations,
    unique_states = case
        when r.ended_at is not null and onefold_job.next is not null
            then (onefold_job.unique_states & 3) | ((onefold_job.unique_states & 4) << 3)
        when r.replayed and (onefold_job.unique_states & 32) <> 0 then 31
        else onefold_job.unique_states
    end,
    unique_until = case
        when r.ended_at is not null and onefold_job.next is not null then null
        else onefold_job.unique_until
    end,
    next = case when r.ended_at is not null then null else onefold_job.next end
from (
    select
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as id,
        json_extract(value, '$[2]') as state,
        json_extract(value, '$[3]') as attempt,
        json_extract(value, '$[4]') as vanished,
        json_extract(value, '$[5]') as run_at,
        json_extract(value, '$[6]') as reason,
        json_extract(value, '$[7]') as error,
        json_extract(value, '$[8]') as ended_at,
        json_extract(value, '$[9]') as keep_until,
        json_extract(value, '$[10]') as replayed,
        json_extract(value, '$[11]') as generations,
        json_extract(value, '$[12]') as not_before
    from json_each(:rows)
) as r
where onefold_job.shard = r.shard and onefold_job.id = r.id
