-- Pause a schedule, or resume it from a given tick. A schedule that is in that state already is not
-- returned.
update onefold.schedule as s
set
    paused = :paused::boolean,
    next_tick = coalesce(:next_tick::bigint, s.next_tick),
    updated_at = clock.now
from
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
        as clock (now)
where
    s.shard = :shard::smallint
    and s.tenant = :tenant::text
    and s.name = :schedule::text
    and s.paused <> :paused::boolean
returning s.name
