-- What a replay must know before it locks anything: the key comes before the row.
select
    j.id::text, j.shard, j.tenant, j.queue, j.kind, j.state, j.priority, j.max_attempts,
    j.unique_kind, j.unique_key, j.unique_states, j.stripped, j.fingerprint,
    j.unique_key is not null and (
        j.yielded
        or (
            j.unique_until is null
            and j.unique_states & 1 = 1
            and (j.unique_states >> j.state) & 1 = 0
        )
    ) as enters,
    j.unique_key is not null
    and not j.yielded
    and (j.unique_until is not null or (j.unique_states >> j.state) & 1 = 1) as holds
from onefold.job as j
where j.shard = (:shard::smallint[])[1] and j.id = any((:id::text[])::uuid[]) and j.tenant = :tenant::text
