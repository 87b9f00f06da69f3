-- Turn jobs into tombstones: they hold their key until its window is over, and nothing else.
update onefold.job as j
set
    stripped = true,
    unique_states = 0,
    keep_until = j.unique_until,
    payload = 'null',
    result = null,
    error = null,
    reason = null,
    options = null,
    worker = null
from unnest(:shard::smallint[], :id::text[]) as r (shard, id)
where j.shard = r.shard and j.id = r.id::uuid and j.unique_until is not null
