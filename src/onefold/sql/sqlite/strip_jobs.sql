-- Turn jobs into tombstones: only their key is left, until its window is over.
update onefold_job
set
    stripped = 1,
    unique_states = 0,
    keep_until = onefold_job.unique_until,
    payload = 'null',
    result = null,
    error = null,
    reason = null,
    options = null,
    worker = null,
    pushed = null
from (
    select
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as id
    from json_each(:rows)
) as r
where onefold_job.shard = r.shard and onefold_job.id = r.id and onefold_job.unique_until is not null
returning id, tenant
