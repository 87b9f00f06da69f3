-- Store new jobs. A job whose key is held, or whose id exists already, is not returned. Keys are locked
-- in the order of the rows, which the caller has sorted. A column that is the same for all rows is given
-- once; unnest fills it up with nulls.
insert into onefold.job (
    shard, id, tenant, queue, kind, priority, run_at, max_attempts, payload, fingerprint,
    unique_kind, unique_key, unique_states, unique_until, created_at, expires_at, options,
    group_key
)
select
    coalesce(r.shard, (:shard::smallint[])[1]),
    r.id::uuid,
    coalesce(r.tenant, (:tenant::text[])[1]),
    coalesce(r.queue, (:queue::text[])[1]),
    coalesce(r.kind, (:kind::text[])[1]),
    coalesce(r.priority, (:priority::smallint[])[1]),
    coalesce(r.run_at, clock.now + coalesce(r.delay, (:delay::bigint[])[1])),
    coalesce(r.max_attempts, (:max_attempts::smallint[])[1]),
    r.payload, r.fingerprint, r.unique_kind, r.unique_key,
    coalesce(r.unique_states, (:unique_states::smallint[])[1]),
    greatest(r.unique_until, clock.now + r.unique_for), clock.now, r.expires_at, r.options, r.group_key
from
    (select coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint))
        as clock (now),
    -- Notifies workers at the commit: one call per queue, not per row.
    (
        select count(pg_notify(left('onefold.job', 63), notified.queue))
        from unnest(:notify::text[]) as notified (queue)
    ) as notification (sent),
    unnest(
        :id::text[], :shard::smallint[], :tenant::text[], :queue::text[], :kind::text[],
        :priority::smallint[], :run_at::bigint[], :delay::bigint[], :max_attempts::smallint[],
        :payload::text[], :fingerprint::text[], :unique_kind::text[], :unique_key::text[],
        :unique_states::smallint[], :unique_for::bigint[], :expires_at::bigint[], :options::text[],
        :group_key::text[], :unique_until::bigint[]
    ) with ordinality as r (
        id, shard, tenant, queue, kind, priority, run_at, delay, max_attempts, payload,
        fingerprint, unique_kind, unique_key, unique_states, unique_for, expires_at, options,
        group_key, unique_until, place
    )
order by r.place
on conflict do nothing
returning id::text
