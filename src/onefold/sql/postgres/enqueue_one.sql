-- Store one new job that has a unique key, or return the holder of the key, as find_holders does. It
-- looks first, and inserts only where it sees no holder; the unique index decides. No row: nothing was
-- stored, and no holder was visible. A duplicate writes nothing. The look is trusted at READ COMMITTED
-- only: at other levels the snapshot may be older than the call. Keep it below 4,096 characters, or
-- psycopg parses it at each call.
with clock (now) as materialized (
    select coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
),
held as materialized (
    select
        j.id, j.state, j.fingerprint, j.attempt, j.run_at, j.awaiting = j.fence as awaits,
        case
            when j.state = 0 and j.expires_at <= clock.now then 2
            when j.unique_until <= clock.now and (j.unique_states >> j.state) & 1 = 0 then 1
            else 0
        end as lapsed
    from clock, onefold.job as j
    where
        j.shard = :shard::smallint
        and j.tenant = :tenant::text
        and j.unique_kind = :unique_kind::text
        and j.unique_key = :unique_key::text
        and j.unique_key is not null
        and not j.yielded
        and (j.unique_until is not null or (j.unique_states >> j.state) & 1 = 1)
        and current_setting('transaction_isolation') = 'read committed'
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
    from
        clock,
        -- Null in a caller's transaction, where it would stay set.
        (
            select
                case
                    when :patience::text is not null
                        then set_config('lock_timeout', :patience::text, true)
                end
        ) as patience (set)
    where not exists (select from held)
    on conflict do nothing
    returning id
)
select
    held.id::text, held.state, held.fingerprint, clock.now, held.lapsed, held.attempt, held.run_at,
    held.awaits
from clock, held
union all
select
    stored.id::text, 0, null, clock.now, 0, 0, null,
    case when :notifies::boolean then pg_notify(left('onefold.job', 63), :queue::text) is null end
from clock, stored
