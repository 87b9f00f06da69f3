-- What a replay has to read before it changes anything.
select
    j.id, j.shard, j.tenant, j.queue, j.kind, j.state, j.priority, j.max_attempts, j.unique_kind,
    j.unique_key, j.unique_states, j.unique_until, j.yielded, j.stripped, j.fingerprint,
    j.expires_at, :now, j.attempt, j.run_at, j.awaiting = j.fence
from (
    select
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as id
    from json_each(:rows)
) as r
cross join onefold_job as j on j.shard = r.shard and j.id = r.id
where j.tenant = :tenant
