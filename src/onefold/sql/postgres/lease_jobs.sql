-- Lease these jobs of one shard to a worker, as exchange_jobs does. Skips rows that other transactions
-- have locked, and jobs that are no longer due. The ids are in the order of the locks.
with picked as materialized (
    select h.at, r.place
    from unnest((:ids::text[])::uuid[]) with ordinality as r (id, place)
    cross join lateral (
        select j.ctid as at
        from onefold.job as j
        where
            j.shard = :shard::smallint
            and j.id = r.id
            and j.state = 0
            and j.run_at <= coalesce(
                :now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint
            )
        limit 1
        for update of j skip locked
    ) as h
    where nullif(r.place, 0) = r.place
)
update onefold.job as j
set
    state = 1,
    not_before = null,
    attempt = j.attempt + 1,
    fence = j.fence + 1,
    worker = :worker::text,
    take_id = :take_id::text::uuid,
    taken_at = clock.now,
    lease_until = clock.now + :lease::bigint,
    unique_states = case when j.unique_states & 2 = 0 then 0 else j.unique_states end
from
    picked,
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
        as clock (now)
where j.shard = :shard::smallint and j.ctid = picked.at and nullif(picked.place, 0) = picked.place
returning
    j.id::text, j.tenant, j.queue, j.kind, j.priority, j.run_at, j.attempt, j.max_attempts, j.fence,
    j.payload, j.unique_key, j.generation, j.created_at, j.expires_at, j.error, j.options, j.group_key,
    j.defers, j.taken_at
