-- Due schedules, from the cursor. Skips those that other transactions have locked.
select
    s.tenant, s.name, s.cron, s.zone, s.kind, s.queue, s.payload, s.options, s.catch_up,
    s.catch_up_most, s.paused, s.declared, s.next_tick, s.last_tick, s.updated_at, clock.now
from
    (select coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint))
        as clock (now),
    onefold.schedule as s
where
    s.shard = :shard::smallint
    and not s.paused
    and s.next_tick <= clock.now
    and (s.tenant, s.name) > (:after_tenant::text, :after_name::text)
order by s.tenant, s.name
limit :limit::integer
for update of s skip locked
