-- Create or change a schedule. A schedule that code has declared can be changed by code and operators,
-- any other only by an operator. The next tick stays if the expression stays, so that no tick is lost.
insert into onefold.schedule (
    shard, tenant, name, cron, zone, kind, queue, payload, options, catch_up, catch_up_most, declared,
    next_tick, updated_at
)
select
    :shard::smallint, :tenant::text, :schedule::text, :cron::text, :zone::text, :kind::text, :queue::text,
    :payload::text, :options::text, :catch_up::smallint, :catch_up_most::integer, :declared::boolean,
    :next_tick::bigint,
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
on conflict (shard, tenant, name) do update
set cron = excluded.cron,
    zone = excluded.zone,
    kind = excluded.kind,
    queue = excluded.queue,
    payload = excluded.payload,
    options = excluded.options,
    catch_up = excluded.catch_up,
    catch_up_most = excluded.catch_up_most,
    declared = excluded.declared,
    next_tick = case
        when (schedule.cron, schedule.zone) = (excluded.cron, excluded.zone) then schedule.next_tick
        else excluded.next_tick
    end,
    updated_at = excluded.updated_at
where
    (schedule.declared or not excluded.declared)
    and (
        schedule.cron, schedule.zone, schedule.kind, schedule.queue, schedule.payload,
        schedule.options, schedule.catch_up, schedule.catch_up_most, schedule.declared
    ) is distinct from (
        excluded.cron, excluded.zone, excluded.kind, excluded.queue, excluded.payload,
        excluded.options, excluded.catch_up, excluded.catch_up_most, excluded.declared
    )
