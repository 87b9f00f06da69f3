-- Store one new job with its publish key, or find the job that the key stands for: publish_unique_job for a
-- job without a unique key. Without the look for one, the server needs a sixth less time.
with clock (now) as materialized (
    select coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
),
known as materialized (
    select
        c.result as id, j.state, j.attempt, j.run_at, j.awaits,
        c.fingerprint is distinct from :mark::text as mismatch,
        c.state = 2 or c.result is null
            or (coalesce(j.state, 2) >= 2 and coalesce(c.expires_at <= clock.now, false)) as is_over
    from clock, (
        select c.state, c.result, c.fingerprint, c.expires_at
        from onefold.claim as c
        where
            c.shard = :shard::smallint and c.tenant = :tenant::text and c.surface = 'publish'
            and c.scope = :queue::text and c.key = :key::text
            and current_setting('transaction_isolation') = 'read committed'
    ) as c
    left join lateral (
        select k.state, k.attempt, k.run_at, k.awaiting = k.fence as awaits
        from onefold.job as k
        where k.shard = :shard::smallint and k.id = c.result::uuid
        limit 1
    ) as j on true
),
claimed as (
    insert into onefold.claim (
        shard, tenant, surface, scope, key, id, owner, state, takeover, fence, created_at,
        settled_at, expires_at, keep, fingerprint, result
    )
    select
        :shard::smallint, :tenant::text, 'publish', :queue::text, :key::text, :id::uuid,
        :id::uuid, 1, 0, (extract(epoch from clock_timestamp()) * 1000000)::bigint, clock.now,
        clock.now, clock.now + :keep::bigint, :keep::bigint, :mark::text, :id::text
    from clock, (select set_config('lock_timeout', '50', true)) as patience (set)
    where not exists (select from known)
    on conflict do nothing
    returning owner
),
stored as (
    insert into onefold.job (
        shard, id, tenant, queue, kind, priority, run_at, max_attempts, payload, created_at,
        expires_at, options, group_key
    )
    select
        :shard::smallint, :id::uuid, :tenant::text, :queue::text, :kind::text,
        :priority::smallint, coalesce(:run_at::bigint, clock.now + :delay::bigint),
        :max_attempts::smallint, :payload::text, clock.now, :expires_at::bigint, :options::text,
        :group_key::text
    from clock, claimed
    returning id
)
select k.id, k.is_over, k.mismatch, k.state, k.attempt, k.run_at, k.awaits, clock.now
from known as k, clock
union all
select s.id::text, false, false, null, null, null, null, (
    -- Notifies workers at the commit.
    select count(pg_notify(left('onefold.job', 63), n.queue)) from unnest(:notify::text[]) as n (queue)
)
from stored as s
