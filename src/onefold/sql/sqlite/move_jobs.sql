-- Store the transitions that the lifecycle has decided. A job that ends with a successor gives its key
-- to it. A replay that has reserved its key holds it again.
update onefold_job
set
    state = r.state,
    attempt = r.attempt,
    vanished = r.vanished,
    defers = case when r.replayed then 0 else onefold_job.defers + r.defers end,
    run_at = coalesce(r.run_at, onefold_job.run_at),
    not_before = r.not_before,
    reason = r.reason,
    error = coalesce(r.error, onefold_job.error),
    result = case when r.replayed then null else onefold_job.result end,
    worker = null,
    lease_until = null,
    awaiting = r.awaiting,
    ended_at = r.ended_at,
    keep_until = r.keep_until,
    expires_at = case when r.replayed then null else onefold_job.expires_at end,
    generation = onefold_job.generation + r.generations,
    yielded = case
        when r.reserved then 0
        when r.ended_at is not null and onefold_job.next is not null then 1
        else onefold_job.yielded
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
        json_extract(value, '$[12]') as not_before,
        json_extract(value, '$[13]') as reserved,
        json_extract(value, '$[14]') as awaiting,
        json_extract(value, '$[15]') as defers
    from json_each(:rows)
) as r
where onefold_job.shard = r.shard and onefold_job.id = r.id
