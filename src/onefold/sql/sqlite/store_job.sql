-- Store one new job without keys. If its id exists already, nothing changes.
insert into onefold_job (
    shard, id, tenant, queue, kind, priority, run_at, max_attempts, payload, created_at, expires_at,
    options, group_key
)
values (
    :shard, :id, :tenant, :queue, :kind, :priority, coalesce(:run_at, :now + :delay), :max_attempts,
    :payload, :now, :expires_at, :options, :group_key
)
on conflict do nothing
