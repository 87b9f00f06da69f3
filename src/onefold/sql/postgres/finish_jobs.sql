-- Complete deliveries whose fence is still valid. Waits for rows that other transactions have locked.
-- Locks in (shard, id) order. Written for the planner as exchange_jobs,
-- but by id: the place of a row may change while its lock is waited for.
with held as materialized (
    select h.id, r.place
    from (
        select u.id, u.fence, u.place
        from
            unnest((:id::text[])::uuid[], :fence::bigint[]) with ordinality as u (id, fence, place)
        where nullif(u.place, 0) = u.place
        order by u.id
    ) as r
    cross join lateral (
        select j.id
        from onefold.job as j
        where
            j.shard = (:shard::smallint[])[1]
            and j.id = r.id
            and j.fence = r.fence
            -- Running; or its lease or ack has timed out (it was not handed back), and it was not taken
            -- since.
            and (
                j.state = 1
                or (j.state = 0 and j.vanished > 0 and j.not_before is not null)
                or (j.state = 0 and j.awaiting = j.fence)
            )
        limit 1
        for update of j
    ) as h
)
update onefold.job as j
set
    state = 2,
    not_before = null,
    vanished = 0,
    lease_until = null,
    result = (:result::text[])[held.place],
    ended_at = clock.now,
    keep_until = clock.now
        + coalesce((j.options::jsonb #>> '{keep,completed}')::bigint, :keep::bigint),
    -- A successor gets the key.
    yielded = j.yielded or j.next is not null
from
    held,
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
        as clock (now)
where
    j.shard = (:shard::smallint[])[1]
    and j.id = held.id
    and nullif(held.place, 0) = held.place
returning j.id::text, j.fence, j.next, j.keep_until <= clock.now
