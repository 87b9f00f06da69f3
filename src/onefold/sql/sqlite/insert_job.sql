-- Store one new job. If its key is held, or its id exists already, nothing changes.
insert into onefold_job (
    shard, id, tenant, queue, kind, priority, run_at, max_attempts, payload, fingerprint,
    unique_kind, unique_key, unique_states, unique_until, created_at, expires_at, options,
    group_key
)
values (
    :shard, :id, :tenant, :queue, :kind, :priority, coalesce(:run_at, :now + :delay), :max_attempts,
    :payload, :fingerprint, :unique_kind, :unique_key, :unique_states,
    coalesce(max(:unique_until, :now + :unique_for), :unique_until, :now + :unique_for), :now,
    :expires_at, :options, :group_key
)
on conflict do nothing
