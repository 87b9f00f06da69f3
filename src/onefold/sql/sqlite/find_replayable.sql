-- What a replay must know before it changes anything.
select
    j.id, j.shard, j.tenant, j.queue, j.kind, j.state, j.priority, j.max_attempts, j.unique_kind,
    j.unique_key, j.unique_states, j.stripped, j.fingerprint,
    j.unique_key is not null and (
        j.yielded
        or (
            j.unique_until is null
            and j.unique_states & 1 = 1
            and (j.unique_states >> j.state) & 1 = 0
        )
    ),
    j.unique_key is not null
    and not j.yielded
    and (j.unique_until is not null or (j.unique_states >> j.state) & 1 = 1)
from (
    select
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as id
    from json_each(:rows)
) as r
cross join onefold_job as j on j.shard = r.shard and j.id = r.id
where j.tenant = :tenant
