-- Lease these jobs of one shard to a worker, as take_jobs does.
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
    and id in (select value from json_each(:ids))
    and state = 0
    and run_at <= :now
returning
    id, tenant, queue, kind, priority, run_at, attempt, max_attempts, fence, payload, unique_key,
    generation, created_at, expires_at, error, options, group_key, defers, :now
