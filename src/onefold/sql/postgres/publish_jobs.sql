-- Store new jobs that have publish keys and no unique keys, each with its key, or neither: in one
-- statement, which is its own transaction. A job whose key exists is not returned. Keys are locked in
-- the order of the rows, which the caller has sorted, and the wait for a lock is short. A column that is
-- the same for all rows is given once; unnest fills it up with nulls.
with clock (now) as materialized (
    select coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
),
asked as materialized (
    select
        coalesce(r.shard, (:shard::smallint[])[1]) as shard,
        r.id::uuid as id,
        coalesce(r.tenant, (:tenant::text[])[1]) as tenant,
        coalesce(r.queue, (:queue::text[])[1]) as queue,
        coalesce(r.kind, (:kind::text[])[1]) as kind,
        coalesce(r.priority, (:priority::smallint[])[1]) as priority,
        coalesce(r.run_at, clock.now + coalesce(r.delay, (:delay::bigint[])[1])) as run_at,
        coalesce(r.max_attempts, (:max_attempts::smallint[])[1]) as max_attempts,
        r.payload, r.expires_at, r.options, r.group_key, r.key, r.fingerprint,
        coalesce(r.keep, (:keep::bigint[])[1]) as keep,
        r.place
    from
        clock,
        -- Set before the first row is inserted, so that it applies to every wait for a lock.
        (select set_config('lock_timeout', '50', true)) as patience (set),
        unnest(
            :id::text[], :shard::smallint[], :tenant::text[], :queue::text[], :kind::text[],
            :priority::smallint[], :run_at::bigint[], :delay::bigint[], :max_attempts::smallint[],
            :payload::text[], :expires_at::bigint[], :options::text[], :group_key::text[],
            :key::text[], :fingerprint::text[], :keep::bigint[]
        ) with ordinality as r (
            id, shard, tenant, queue, kind, priority, run_at, delay, max_attempts, payload,
            expires_at, options, group_key, key, fingerprint, keep, place
        )
),
claimed as (
    insert into onefold.claim (
        shard, tenant, surface, scope, key, id, owner, state, takeover, fence, created_at,
        settled_at, expires_at, keep, fingerprint, result
    )
    select
        a.shard, a.tenant, 'publish', a.queue, a.key, a.id, a.id, 1, 0,
        (extract(epoch from clock_timestamp()) * 1000000)::bigint, clock.now, clock.now,
        clock.now + a.keep, a.keep, a.fingerprint, a.id::text
    from clock, asked as a
    order by a.place
    on conflict do nothing
    returning owner
)
insert into onefold.job (
    shard, id, tenant, queue, kind, priority, run_at, max_attempts, payload, created_at, expires_at,
    options, group_key
)
select
    a.shard, a.id, a.tenant, a.queue, a.kind, a.priority, a.run_at, a.max_attempts, a.payload,
    clock.now, a.expires_at, a.options, a.group_key
from
    clock,
    -- Notifies workers at the commit: one call per queue, not per row.
    (
        select count(pg_notify(left('onefold.job', 63), notified.queue))
        from unnest(:notify::text[]) as notified (queue)
    ) as bell (rung),
    claimed as c
    join asked as a on a.id = c.owner
order by a.place
returning id::text
