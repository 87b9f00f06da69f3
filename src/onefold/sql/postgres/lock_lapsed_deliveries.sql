-- Running jobs whose lease has ended. Reads the running rows (job_running): their number is limited by
-- the number of workers. Skips rows that a heartbeat or a finish has locked.
select
    j.id::text, j.shard, j.state, j.attempt, j.max_attempts, j.fence, j.vanished,
    j.options, j.next, j.stripped, j.kind, j.queue, j.worker, j.taken_at, j.ended_at, j.tenant,
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint),
    j.awaiting, j.awaiting_dead, case when j.awaiting = j.fence then j.pushed end
from onefold.job as j
where
    j.shard = :shard::smallint
    and j.state = 1
    and j.lease_until <= coalesce(
        :now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint
    )
-- As text, in the same order: the planner must not go through all jobs by their ids.
order by j.id::text collate "C"
limit :limit::integer
for update skip locked
