-- The schedule of a tenant with a name, and the time. Only the time if there is none.
select
    s.tenant, s.name, s.cron, s.zone, s.kind, s.queue, s.payload, s.options, s.catch_up,
    s.catch_up_most, s.paused, s.declared, s.next_tick, s.last_tick, s.updated_at, clock.now
from (select :now as now) as clock
left join onefold_schedule as s
    on s.shard = :shard and s.tenant = :tenant and s.name = :schedule
