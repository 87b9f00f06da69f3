-- Read the state of jobs by id, from which the lifecycle decides. SQLite has one writer, and needs no
-- lock.
select
    j.id, j.shard, j.state, j.attempt, j.max_attempts, j.fence, j.vanished,
    j.options, j.next, j.stripped, j.kind, j.queue, j.worker, j.taken_at,
    j.ended_at, j.tenant, :now, j.awaiting, j.awaiting_dead,
    case when j.awaiting = j.fence then j.pushed end, j.run_at
from (
    select
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as id
    from json_each(:rows)
) as r
cross join onefold_job as j on j.shard = r.shard and j.id = r.id
where :tenant is null or j.tenant = :tenant
