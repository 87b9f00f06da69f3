-- Store new jobs without keys, which cannot conflict: nothing is read first, and nothing is returned. A
-- column that is the same for all rows is given once; unnest fills it up with nulls.
insert into onefold.job (
    shard, id, tenant, queue, kind, priority, run_at, max_attempts, payload, created_at, expires_at,
    options, group_key
)
select
    coalesce(r.shard, (:shard::smallint[])[1]),
    r.id,
    coalesce(r.tenant, (:tenant::text[])[1]),
    coalesce(r.queue, (:queue::text[])[1]),
    coalesce(r.kind, (:kind::text[])[1]),
    coalesce(r.priority, (:priority::smallint[])[1]),
    coalesce(r.run_at, clock.now + coalesce(r.delay, (:delay::bigint[])[1])),
    coalesce(r.max_attempts, (:max_attempts::smallint[])[1]),
    r.payload, clock.now, r.expires_at,
    r.options, r.group_key
from
    (select coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint))
        as clock (now),
    -- Notifies workers at the commit: one call per queue, not per row.
    (
        select count(pg_notify(left('onefold.job', 63), notified.queue))
        from unnest(:notify::text[]) as notified (queue)
    ) as notification (sent),
    unnest(
        :id::uuid[], :shard::smallint[], :tenant::text[], :queue::text[], :kind::text[],
        :priority::smallint[], :run_at::bigint[], :delay::bigint[], :max_attempts::smallint[],
        :payload::text[], :expires_at::bigint[], :options::text[], :group_key::text[]
    ) as r (
        id, shard, tenant, queue, kind, priority, run_at, delay, max_attempts, payload, expires_at,
        options, group_key
    )
