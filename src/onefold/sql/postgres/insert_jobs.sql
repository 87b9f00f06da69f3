-- Store new jobs; a job whose key is held, or whose id is there already, is left out of the answer.
-- Keys are locked in the order of the rows, which the caller has sorted.
insert into onefold.job (
    shard, id, tenant, queue, kind, priority, run_at, max_attempts, payload, fingerprint,
    unique_kind, unique_key, unique_states, unique_until, created_at, expires_at, options
)
select
    r.shard, r.id::uuid, r.tenant, r.queue, r.kind, r.priority,
    coalesce(r.run_at, clock.now + r.delay), r.max_attempts, r.payload, r.fingerprint,
    r.unique_kind, r.unique_key, r.unique_states, clock.now + r.unique_for, clock.now,
    r.expires_at, r.options
from
    (select coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint))
        as clock (now),
    unnest(
        :id::text[], :shard::smallint[], :tenant::text[], :queue::text[], :kind::text[],
        :priority::smallint[], :run_at::bigint[], :delay::bigint[], :max_attempts::smallint[],
        :payload::text[], :fingerprint::text[], :unique_kind::text[], :unique_key::text[],
        :unique_states::smallint[], :unique_for::bigint[], :expires_at::bigint[], :options::text[]
    ) with ordinality as r (
        id, shard, tenant, queue, kind, priority, run_at, delay, max_attempts, payload,
        fingerprint, unique_kind, unique_key, unique_states, unique_for, expires_at, options, place
    )
order by r.place
on conflict do nothing
returning id::text
