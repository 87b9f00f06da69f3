-- Store one new job with its publish key and its unique key, or find the job that one of them stands for: in
-- one statement, which is its own transaction. Nothing is returned if a rival has stored the key after
-- this snapshot. The job's insert has no "on conflict": a rival for the unique key must undo the claim,
-- too. The lateral limit makes the look-up one of the primary key, whatever the statistics are. A wait for
-- a lock is short. Psycopg keeps the parsed text only below 4,096 characters.
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
held as materialized (
    select
        j.id, j.state, j.attempt, j.run_at, j.awaiting = j.fence as awaits,
        j.fingerprint is distinct from :fingerprint::text as mismatch,
        (j.state = 0 and coalesce(j.expires_at <= clock.now, false)) or (
            coalesce(j.unique_until <= clock.now, false) and (j.unique_states >> j.state) & 1 = 0
        ) as is_over
    from clock, onefold.job as j
    where
        j.shard = :shard::smallint and j.tenant = :tenant::text
        and j.unique_kind = :unique_kind::text and j.unique_key = :unique_key::text
        and j.unique_key is not null and not j.yielded
        and (j.unique_until is not null or (j.unique_states >> j.state) & 1 = 1)
        and not exists (select from known)
        and current_setting('transaction_isolation') = 'read committed'
),
claimed as (
    insert into onefold.claim (
        shard, tenant, surface, scope, key, id, owner, state, takeover, fence, created_at,
        settled_at, expires_at, keep, fingerprint, result
    )
    select
        :shard::smallint, :tenant::text, 'publish', :queue::text, :key::text, :id::uuid,
        :id::uuid, 1, 0, (extract(epoch from clock_timestamp()) * 1000000)::bigint, clock.now,
        clock.now, clock.now + :keep::bigint, :keep::bigint, :mark::text,
        coalesce((select held.id::text from held), :id::text)
    from clock, (select set_config('lock_timeout', '50', true)) as patience (set)
    where not exists (select from known) and not exists (select from held where held.is_over)
    on conflict do nothing
    returning owner
),
stored as (
    insert into onefold.job (
        shard, id, tenant, queue, kind, priority, run_at, max_attempts, payload, fingerprint,
        unique_kind, unique_key, unique_states, unique_until, created_at, expires_at, options,
        group_key
    )
    select
        :shard::smallint, :id::uuid, :tenant::text, :queue::text, :kind::text,
        :priority::smallint, coalesce(:run_at::bigint, clock.now + :delay::bigint),
        :max_attempts::smallint, :payload::text, :fingerprint::text, :unique_kind::text,
        :unique_key::text, :unique_states::smallint,
        greatest(:unique_until::bigint, clock.now + :unique_for::bigint), clock.now,
        :expires_at::bigint, :options::text, :group_key::text
    from clock, claimed
    where not exists (select from held)
    returning id
)
select k.id, k.is_over, k.mismatch, k.state, k.attempt, k.run_at, k.awaits, clock.now
from known as k, clock
union all
select h.id::text, h.is_over, h.mismatch, h.state, h.attempt, h.run_at, h.awaits, clock.now
from held as h, clock
where h.is_over or exists (select from claimed)
union all
select s.id::text, false, false, null, null, null, null, (
    -- Notifies workers at the commit.
    select count(pg_notify(left('onefold.job', 63), n.queue)) from unnest(:notify::text[]) as n (queue)
)
from stored as s
