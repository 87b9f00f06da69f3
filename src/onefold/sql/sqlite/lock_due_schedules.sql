-- Due schedules, from the cursor.
select
    s.tenant, s.name, s.cron, s.zone, s.kind, s.queue, s.payload, s.options, s.catch_up,
    s.catch_up_most, s.paused, s.declared, s.next_tick, s.last_tick, s.updated_at, :now
from onefold_schedule as s
where
    s.shard = :shard
    and not s.paused
    and s.next_tick <= :now
    and (s.tenant, s.name) > (:after_tenant, :after_name)
order by s.tenant, s.name
limit :limit
