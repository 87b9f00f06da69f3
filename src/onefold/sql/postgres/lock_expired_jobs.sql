-- Queued jobs that have expired. Uses job_expiring.
select
    j.id::text, j.shard, j.state, j.attempt, j.max_attempts, j.fence, j.vanished,
    j.options, j.next, j.stripped, j.kind, j.queue, j.worker, j.taken_at, j.ended_at, j.tenant,
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint),
    j.awaiting, j.awaiting_dead, case when j.awaiting = j.fence then j.pushed end
from onefold.job as j
where
    j.shard = :shard::smallint
    and j.state = 0
    and j.expires_at <= coalesce(
        :now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint
    )
order by j.expires_at
limit :limit::integer
for update skip locked
