-- Read the current state of the holders that a request wants to change. SQLite has one writer, and needs
-- no lock.
select
    j.id, j.state, j.run_at, j.not_before, j.created_at, j.unique_states, j.unique_until,
    not j.yielded and (j.unique_until is not null or (j.unique_states >> j.state) & 1 = 1), :now,
    j.attempt, j.awaiting = j.fence
from (
    select
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as id
    from json_each(:rows)
) as r
cross join onefold_job as j on j.shard = r.shard and j.id = r.id
