-- The shard, whether any schedule is due, when the next one will be; whether there may be something to
-- rescue, fold, prune and sweep; and the time. Each part needs one row of an index. Leases are not
-- compared here: all workers run this, and one of them reads all running jobs.
select
    :shard::smallint,
    coalesce(bool_or(s.next_tick <= clock.now), false),
    min(s.next_tick) filter (where s.next_tick > clock.now),
    exists (select 1 from onefold.job as r where r.shard = :shard::smallint and r.state = 1)
    or exists (
        select 1 from onefold.job as e
        where e.shard = :shard::smallint and e.state = 0 and e.expires_at <= clock.now
    ),
    exists (select 1 from onefold.duplicate as d where d.shard = :shard::smallint),
    exists (
        select 1 from onefold.job as k where k.shard = :shard::smallint and k.keep_until <= clock.now
    ),
    exists (
        select 1 from onefold.claim as c
        where c.shard = :shard::smallint and c.state <> 0 and c.expires_at <= clock.now
    )
    or exists (select 1 from onefold.rate as b where b.shard = :shard::smallint),
    clock.now
from
    (select coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint))
        as clock (now)
left join onefold.schedule as s
    on s.shard = :shard::smallint and not s.paused
group by clock.now
