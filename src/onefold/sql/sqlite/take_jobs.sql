-- Lease up to :limit due jobs of one queue and priority to a worker, by run_at, then id. The update also
-- clears the scope of a key that is held only while the job is queued.
update onefold_job
set
    state = 1,
    not_before = null,
    attempt = attempt + 1,
    fence = fence + 1,
    worker = :worker,
    take_id = :take_id,
    taken_at = :now,
    lease_until = :now + :lease,
    unique_states = case when unique_states & 2 = 0 then 0 else unique_states end
where
    shard = :shard
    and id in (
        select j.id
        from onefold_job as j
        where
            j.shard = :shard
            and j.queue = :queue
            and j.state = 0
            and j.group_key is null
            and j.priority = :priority
            and j.run_at <= :now
            and (j.expires_at is null or j.expires_at > :now)
            and j.kind not in (select u.value from json_each(:unknown) as u)
        order by j.run_at, j.id
        limit :limit
    )
returning
    id, tenant, queue, kind, priority, run_at, attempt, max_attempts, fence, payload, unique_key,
    generation, created_at, expires_at, error, options, group_key, defers, :now
