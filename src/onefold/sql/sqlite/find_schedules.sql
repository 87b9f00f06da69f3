-- Some schedules of a tenant by name, after a name.
select
    s.tenant, s.name, s.cron, s.zone, s.kind, s.queue, s.payload, s.options, s.catch_up,
    s.catch_up_most, s.paused, s.declared, s.next_tick, s.last_tick, s.updated_at
from onefold_schedule as s
where s.shard = :shard and s.tenant = :tenant and s.name > :after
order by s.name
limit :limit
