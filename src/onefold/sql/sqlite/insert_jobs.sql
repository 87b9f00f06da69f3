-- Store new jobs; a job whose key is held, or whose id is there already, is left out of the answer.
insert into onefold_job (
    shard, id, tenant, queue, kind, priority, run_at, max_attempts, payload, fingerprint,
    unique_kind, unique_key, unique_states, unique_until, created_at, expires_at, options
)
select
    r.shard, r.id, r.tenant, r.queue, r.kind, r.priority, coalesce(r.run_at, :now + r.delay),
    r.max_attempts, r.payload, r.fingerprint, r.unique_kind, r.unique_key, r.unique_states,
    :now + r.unique_for, :now, r.expires_at, r.options
from (
    select
        json_extract(value, '$[0]') as id,
        json_extract(value, '$[1]') as shard,
        json_extract(value, '$[2]') as tenant,
        json_extract(value, '$[3]') as queue,
        json_extract(value, '$[4]') as kind,
        json_extract(value, '$[5]') as priority,
        json_extract(value, '$[6]') as run_at,
        json_extract(value, '$[7]') as delay,
        json_extract(value, '$[8]') as max_attempts,
        json_extract(value, '$[9]') as payload,
        json_extract(value, '$[10]') as fingerprint,
        json_extract(value, '$[11]') as unique_kind,
        json_extract(value, '$[12]') as unique_key,
        json_extract(value, '$[13]') as unique_states,
        json_extract(value, '$[14]') as unique_for,
        json_extract(value, '$[15]') as expires_at,
        json_extract(value, '$[16]') as options
    from json_each(:rows)
) as r
where true
on conflict do nothing
returning id
