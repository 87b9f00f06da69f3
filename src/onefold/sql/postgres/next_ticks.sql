-- Whether any schedule is due, and when the next one will be.
select
    coalesce(bool_or(s.next_tick <= clock.now), false),
    min(s.next_tick) filter (where s.next_tick > clock.now)
from
    (select coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint))
        as clock (now),
    onefold.schedule as s
where s.shard = :shard::smallint and not s.paused
