-- The job that a request meets: the job with its id (an earlier try may have stored it), or the holder
-- of its key; and whether that job has lost its key: 1 its window is over, 2 it has expired. Uses the
-- primary key and job_unique; the lateral limit makes it one index lookup per request. Locks nothing.
select
    r.id, h.id::text, h.state, h.fingerprint, clock.now,
    case
        when h.state = 0 and h.expires_at <= clock.now then 2
        when h.unique_until <= clock.now and (h.unique_states >> h.state) & 1 = 0 then 1
        else 0
    end as lapsed,
    h.attempt, h.run_at, h.awaits
from
    (select coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint))
        as clock (now),
    unnest(
        :id::text[], :tenant::text[], :unique_kind::text[], :unique_key::text[]
    ) as r (id, tenant, unique_kind, unique_key)
cross join lateral (
    (
        select j.id, j.state, j.fingerprint, j.unique_until, j.unique_states,
            j.expires_at, j.attempt, j.run_at, j.awaiting = j.fence as awaits
        from onefold.job as j
        where :resent::boolean and j.shard = (:shard::smallint[])[1] and j.id = r.id::uuid
    )
    union all
    (
        select j.id, j.state, j.fingerprint, j.unique_until, j.unique_states,
            j.expires_at, j.attempt, j.run_at, j.awaiting = j.fence as awaits
        from onefold.job as j
        where
            j.shard = (:shard::smallint[])[1]
            and j.tenant = r.tenant
            and j.unique_kind = r.unique_kind
            and j.unique_key = r.unique_key
            and j.unique_key is not null
            and not j.yielded
            and (j.unique_until is not null or (j.unique_states >> j.state) & 1 = 1)
    )
    limit 1
) as h
