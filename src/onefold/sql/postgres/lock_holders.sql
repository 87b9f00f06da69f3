-- Lock the holders that a request wants to change, in (shard, id) order, and read their current state.
select
    j.id::text, j.state, j.run_at, j.not_before, j.created_at, j.unique_states, j.unique_until,
    not j.yielded and (j.unique_until is not null or (j.unique_states >> j.state) & 1 = 1) as holds,
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint),
    j.attempt, j.awaiting = j.fence
from onefold.job as j
where j.shard = (:shard::smallint[])[1] and j.id = any((:id::text[])::uuid[])
order by j.shard, j.id
for update of j
