-- Turn jobs into tombstones: only their key is left, until its window is over.
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
    worker = null,
    pushed = null
where j.shard = (:shard::smallint[])[1] and j.id = any((:id::text[])::uuid[]) and j.unique_until is not null
returning j.id::text, j.tenant
