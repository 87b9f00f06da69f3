-- Store new jobs, some or all with unique keys, of one shard; return the holders of keys that are held,
-- as find_holders does, by the place of the request (from 1), and last a row without a place. The insert
-- has no "on conflict", which would cost a fifth more: a rival after this snapshot is an error, and the
-- transaction is tried again with insert_jobs. Keys are locked in the order of the rows, which the caller
-- has sorted. A column that is the same for all rows is given once; unnest fills it up with nulls. The
-- planner does not see the length of the first arrays, so that it plans once: see publish_jobs.
with clock (now) as materialized (
    select coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
),
held as materialized (
    select
        r.place, h.id, h.state, h.fingerprint, clock.now,
        case
            when h.state = 0 and h.expires_at <= clock.now then 2
            when h.unique_until <= clock.now and (h.unique_states >> h.state) & 1 = 0 then 1
            else 0
        end as lapsed,
        h.attempt, h.run_at, h.awaits
    from
        clock,
        unnest((select :tenant::text[]), :unique_kind::text[], :unique_key::text[])
            with ordinality as r (tenant, unique_kind, unique_key, place)
    cross join lateral (
        select
            j.id, j.state, j.fingerprint, j.unique_until, j.unique_states, j.expires_at, j.attempt,
            j.run_at, j.awaiting = j.fence as awaits
        from onefold.job as j
        where
            j.shard = (:shard::smallint[])[1]
            and j.tenant = coalesce(r.tenant, (:tenant::text[])[1])
            and j.unique_kind = coalesce(r.unique_kind, (:unique_kind::text[])[1])
            and j.unique_key = r.unique_key
            and j.unique_key is not null
            and not j.yielded
            and (j.unique_until is not null or (j.unique_states >> j.state) & 1 = 1)
        limit 1
    ) as h
),
stored as (
    insert into onefold.job (
        shard, id, tenant, queue, kind, priority, run_at, max_attempts, payload, fingerprint,
        unique_kind, unique_key, unique_states, unique_until, created_at, expires_at, options,
        group_key
    )
    select
        (:shard::smallint[])[1],
        r.id,
        coalesce(r.tenant, (:tenant::text[])[1]),
        coalesce(r.queue, (:queue::text[])[1]),
        coalesce(r.kind, (:kind::text[])[1]),
        coalesce(r.priority, (:priority::smallint[])[1]),
        coalesce(r.run_at, clock.now + coalesce(r.delay, (:delay::bigint[])[1])),
        coalesce(r.max_attempts, (:max_attempts::smallint[])[1]),
        r.payload, r.fingerprint,
        case when r.unique_key is not null then coalesce(r.unique_kind, (:unique_kind::text[])[1]) end,
        r.unique_key,
        coalesce(r.unique_states, (:unique_states::smallint[])[1]),
        greatest(r.unique_until, clock.now + r.unique_for), clock.now, r.expires_at, r.options,
        r.group_key
    from
        clock,
        unnest(
            (select :id::uuid[]), :tenant::text[], :queue::text[], :kind::text[],
            :priority::smallint[],
            :run_at::bigint[], :delay::bigint[], :max_attempts::smallint[], :payload::text[],
            :fingerprint::text[], :unique_kind::text[], :unique_key::text[],
            :unique_states::smallint[], :unique_for::bigint[], :expires_at::bigint[],
            :options::text[], :group_key::text[], :unique_until::bigint[]
        ) with ordinality as r (
            id, tenant, queue, kind, priority, run_at, delay, max_attempts, payload, fingerprint,
            unique_kind, unique_key, unique_states, unique_for, expires_at, options, group_key,
            unique_until, place
        )
    where r.place not in (select held.place from held)
    order by r.place
    returning 1
)
select
    h.place, h.id::text, h.state, h.fingerprint, h.now, h.lapsed, h.attempt, h.run_at, h.awaits
from held as h
union all
-- Notifies workers at the commit, if something was stored.
select null, null, null, null, count(pg_notify(left('onefold.job', 63), n.queue)), null, null, null, null
from unnest(:notify::text[]) as n (queue)
where exists (select from stored)
