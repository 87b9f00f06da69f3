-- Store new jobs that have publish keys and no unique keys, each with its key, or find the jobs that known
-- keys stand for: in one statement, which is its own transaction. A job is not returned if a rival has
-- stored its key after this snapshot, or if its API key is not valid. Keys are locked in the order of
-- the rows, which the caller has sorted, and the wait for a lock is short. A column that is the same for
-- all rows is given once; unnest fills it up with nulls. The planner does not see the length of the first
-- array: for less than the ten elements that it expects, it would plan each time, which takes longer than
-- all the rest.
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
            (select :id::text[]), :shard::smallint[], :tenant::text[], :queue::text[], :kind::text[],
            :priority::smallint[], :run_at::bigint[], :delay::bigint[], :max_attempts::smallint[],
            :payload::text[], :expires_at::bigint[], :options::text[], :group_key::text[],
            :key::text[], :fingerprint::text[], :keep::bigint[], :api_key::text[]
        ) with ordinality as r (
            id, shard, tenant, queue, kind, priority, run_at, delay, max_attempts, payload,
            expires_at, options, group_key, key, fingerprint, keep, api_key,
            place
        )
    where
        coalesce(r.api_key, (:api_key::text[])[1]) = '' or exists (
            select from onefold.api_key as k
            where
                k.shard = (:shard::smallint[])[1]
                and k.id = coalesce(r.api_key, (:api_key::text[])[1])
                and k.revoked_at is null and coalesce(k.expires_at > clock.now, true)
        )
),
known as materialized (
    select
        a.place, a.id as request_id, c.result as id, j.state, j.attempt, j.run_at, j.awaits,
        c.fingerprint is distinct from a.fingerprint as mismatch,
        c.state = 2 or c.result is null
            or (coalesce(j.state, 2) >= 2 and coalesce(c.expires_at <= clock.now, false)) as is_over
    from clock, asked as a
    cross join lateral (
        select c.state, c.result, c.fingerprint, c.expires_at
        from onefold.claim as c
        where
            c.shard = (:shard::smallint[])[1] and c.tenant = a.tenant and c.surface = 'publish'
            and c.scope = a.queue and c.key = a.key
            and current_setting('transaction_isolation') = 'read committed'
        limit 1
    ) as c
    left join lateral (
        select k.state, k.attempt, k.run_at, k.awaiting = k.fence as awaits
        from onefold.job as k
        where k.shard = (:shard::smallint[])[1] and k.id = c.result::uuid
        limit 1
    ) as j on true
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
    where a.place not in (select known.place from known)
    order by a.place
    on conflict do nothing
    returning owner
),
stored as (
    insert into onefold.job (
        shard, id, tenant, queue, kind, priority, run_at, max_attempts, payload, created_at,
        expires_at, options, group_key
    )
    select
        a.shard, a.id, a.tenant, a.queue, a.kind, a.priority, a.run_at, a.max_attempts, a.payload,
        clock.now, a.expires_at, a.options, a.group_key
    from clock, claimed as c
    join asked as a on a.id = c.owner
    order by a.place
    returning id
)
select
    k.request_id::text, k.id, k.is_over, k.mismatch, k.state, k.attempt, k.run_at, k.awaits, clock.now
from known as k, clock
union all
select s.id::text, s.id::text, false, false, null, null, null, null, null
from stored as s
union all
-- Notifies workers at the commit, if something was stored: one call per queue, not per row.
select null, null, true, false, null, null, null, null, count(pg_notify(left('onefold.job', 63), n.queue))
from unnest(:notify::text[]) as n (queue)
where exists (select from stored)
