-- The shard, whether any schedule is due, when the next one will be, and the time.
select
    :shard,
    coalesce(max(s.next_tick <= :now), 0),
    min(s.next_tick) filter (where s.next_tick > :now),
    :now
from onefold_schedule as s
where s.shard = :shard and not s.paused
