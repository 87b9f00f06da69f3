-- The shard, whether any schedule is due, when the next one will be, and the time.
select
    :shard::smallint,
    coalesce(bool_or(s.next_tick <= clock.now), false),
    min(s.next_tick) filter (where s.next_tick > clock.now),
    clock.now
from
    (select coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint))
        as clock (now)
left join onefold.schedule as s
    on s.shard = :shard::smallint and not s.paused
group by clock.now
