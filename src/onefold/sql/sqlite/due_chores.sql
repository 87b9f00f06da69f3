-- The shard, whether any schedule is due, when the next one will be; whether there may be something to
-- rescue, fold, prune, sweep and sample; and the time. Each part needs one row of an index.
select
    :shard,
    coalesce(max(s.next_tick <= :now), 0),
    min(s.next_tick) filter (where s.next_tick > :now),
    exists (select 1 from onefold_job as r where r.shard = :shard and r.state = 1)
    or exists (
        select 1 from onefold_job as e
        where e.shard = :shard and e.state = 0 and e.expires_at <= :now
    ),
    exists (select 1 from onefold_duplicate as d where d.shard = :shard),
    exists (select 1 from onefold_job as k where k.shard = :shard and k.keep_until <= :now)
    or exists (
        select 1 from onefold_statistic as o
        where o.shard = :shard and o.minute <= :now - :statistic_age
    )
    or exists (
        select 1 from onefold_worker as w
        where w.shard = :shard and w.seen_at <= :now - :worker_age
    ),
    exists (
        select 1 from onefold_claim as c
        where c.shard = :shard and c.state <> 0 and c.expires_at <= :now
    )
    or exists (select 1 from onefold_rate as b where b.shard = :shard),
    exists (
        select 1 from onefold_job as q
        where q.shard = :shard and q.state = 0 and q.group_key is null
    )
    or exists (
        select 1 from onefold_job as q
        where q.shard = :shard and q.state = 0 and q.group_key is not null
    ),
    :now
from onefold_schedule as s
where s.shard = :shard and not s.paused
