-- Store one new job, as insert_job does, on one node of Citus: only plain VALUES are sent to one node as
-- they are. The notification is apart.
insert into onefold.job (
    shard, id, tenant, queue, kind, priority, run_at, max_attempts, payload, fingerprint,
    unique_kind, unique_key, unique_states, unique_until, created_at, expires_at, options,
    group_key
)
values (
    :shard::smallint, :id::uuid, :tenant::text, :queue::text, :kind::text, :priority::smallint,
    coalesce(
        :run_at::bigint,
        coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
            + :delay::bigint
    ),
    :max_attempts::smallint, :payload::text, :fingerprint::text, :unique_kind::text,
    :unique_key::text, :unique_states::smallint,
    greatest(
        :unique_until::bigint,
        coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
            + :unique_for::bigint
    ),
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint),
    :expires_at::bigint, :options::text, :group_key::text
)
on conflict do nothing
returning id::text
