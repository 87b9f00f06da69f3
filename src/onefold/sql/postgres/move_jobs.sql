-- Store the transitions that the lifecycle has decided, for rows that are locked already. A job that
-- ends with a successor gives its key to it. A replay that has reserved its key holds it again.
update onefold.job as j
set
    state = r.state,
    attempt = r.attempt,
    vanished = r.vanished,
    defers = case when r.replayed then 0 else j.defers + r.defers end,
    run_at = coalesce(r.run_at, j.run_at),
    not_before = r.not_before,
    reason = r.reason,
    error = coalesce(r.error, j.error),
    result = case when r.replayed then null else j.result end,
    worker = null,
    lease_until = null,
    awaiting = r.awaiting,
    ended_at = r.ended_at,
    keep_until = r.keep_until,
    expires_at = case when r.replayed then null else j.expires_at end,
    generation = j.generation + r.generations,
    yielded = case
        when r.reserved then false
        when r.ended_at is not null and j.next is not null then true
        else j.yielded
    end,
    next = case when r.ended_at is not null then null else j.next end
from unnest(
    :id::text[], :state::smallint[], :attempt::smallint[], :vanished::smallint[],
    :run_at::bigint[], :reason::text[], :error::text[], :ended_at::bigint[], :keep_until::bigint[],
    :replayed::boolean[], :generations::integer[], :not_before::bigint[],
    :reserved::boolean[], :awaiting::bigint[], :defers::integer[]
) as r (
    id, state, attempt, vanished, run_at, reason, error, ended_at, keep_until, replayed,
    generations, not_before, reserved, awaiting, defers
)
where
    j.shard = (:shard::smallint[])[1]
    and j.id = any((:id::text[])::uuid[])
    -- As text, so that the planner finds the rows by the array, and not by the join.
    and j.id::text = r.id
