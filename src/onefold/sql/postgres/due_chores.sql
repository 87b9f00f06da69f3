-- The shard, whether any schedule is due, when the next one will be; whether there may be something to
-- rescue, fold, prune, sweep and sample; and the time. Each part reads one row of an index, because of its
-- min: for `exists`, the planner may prefer to read the table. Leases are not compared here: all workers
-- run this, and one of them then reads all running jobs.
select
    :shard::smallint,
    coalesce(bool_or(s.next_tick <= clock.now), false),
    min(s.next_tick) filter (where s.next_tick > clock.now),
    (select min(r.queue) from onefold.job as r where r.shard = :shard::smallint and r.state = 1)
    is not null
    or coalesce((
        select min(e.expires_at) from onefold.job as e
        where e.shard = :shard::smallint and e.state = 0
    ) <= clock.now, false),
    (select min(d.number) from onefold.duplicate as d where d.shard = :shard::smallint) is not null,
    coalesce((
        select min(k.keep_until) from onefold.job as k where k.shard = :shard::smallint
    ) <= clock.now, false)
    or coalesce((
        select min(o.minute) from onefold.statistic as o where o.shard = :shard::smallint
    ) <= clock.now - :statistic_age::bigint, false)
    or coalesce((
        select min(w.seen_at) from onefold.worker as w where w.shard = :shard::smallint
    ) <= clock.now - :worker_age::bigint, false),
    coalesce((
        select min(c.expires_at) from onefold.claim as c
        where c.shard = :shard::smallint and c.state <> 0
    ) <= clock.now, false)
    or (select min(b.queue) from onefold.rate as b where b.shard = :shard::smallint) is not null,
    (
        select min(q.queue) from onefold.job as q
        where q.shard = :shard::smallint and q.state = 0 and q.group_key is null
    ) is not null
    or (
        select min(q.queue) from onefold.job as q
        where q.shard = :shard::smallint and q.state = 0 and q.group_key is not null
    ) is not null,
    clock.now
from
    (select coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint))
        as clock (now)
left join onefold.schedule as s
    on s.shard = :shard::smallint and not s.paused
group by clock.now
