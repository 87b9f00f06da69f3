-- The schedule of a tenant with a name, and the time. Only the time if there is none. Uses the primary key.
select
    s.tenant, s.name, s.cron, s.zone, s.kind, s.queue, s.payload, s.options, s.catch_up,
    s.catch_up_most, s.paused, s.declared, s.next_tick, s.last_tick, s.updated_at, clock.now
from
    (select coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint))
        as clock (now)
left join onefold.schedule as s
    on s.shard = :shard::smallint and s.tenant = :tenant::text and s.name = :schedule::text
