-- Some schedules of a tenant by name, after a name. Uses the primary key.
select
    s.tenant, s.name, s.cron, s.zone, s.kind, s.queue, s.payload, s.options, s.catch_up,
    s.catch_up_most, s.paused, s.declared, s.next_tick, s.last_tick, s.updated_at
from onefold.schedule as s
where s.shard = :shard::smallint and s.tenant = :tenant::text and s.name > :after::text
order by s.name
limit :limit::integer
