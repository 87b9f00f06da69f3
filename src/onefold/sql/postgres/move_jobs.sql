-- Write down the steps that lifecycle decided for rows that are locked already. A final state with a
-- waiting successor hands the key over to it: no final state holds it any more, but a replay asks for it
-- again, and bit 5 remembers for it that the key was held in every state.
update onefold.job as j
set
    state = r.state,
    attempt = r.attempt,
    vanished = r.vanished,
    run_at = coalesce(r.run_at, j.run_at),
    not_before = r.not_before,
    reason = r.reason,
    error = coalesce(r.error, j.error),
    worker = null,
    lease_until = null,
    ended_at = r.ended_at,
    keep_until = r.keep_until,
    expires_at = case when r.replayed then null else j.expires_at end,
    generation = j.generation + r.generations,
    unique_states = case
        when r.ended_at is not null and j.next is not null
            then (j.unique_states & 3) | ((j.unique_states & 4) << 3)
        when r.replayed and (j.unique_states & 32) <> 0 then 31
        else j.unique_states
    end,
    unique_until = case when r.ended_at is not null and j.next is not null then null else j.unique_until end,
    next = case when r.ended_at is not null then null else j.next end
from unnest(
    :shard::smallint[], :id::text[], :state::smallint[], :attempt::smallint[], :vanished::smallint[],
    :run_at::bigint[], :reason::text[], :error::text[], :ended_at::bigint[], :keep_until::bigint[],
    :replayed::boolean[], :generations::integer[], :not_before::bigint[]
) as r (
    shard, id, state, attempt, vanished, run_at, reason, error, ended_at, keep_until, replayed,
    generations, not_before
)
where j.shard = r.shard and j.id = r.id::uuid
