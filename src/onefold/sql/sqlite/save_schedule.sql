-- Create or change a schedule. A schedule that code has declared can be changed by code and operators,
-- any other only by an operator. The next tick stays if the expression stays, so that no tick is lost.
insert into onefold_schedule (
    shard, tenant, name, cron, zone, kind, queue, payload, options, catch_up, catch_up_most, declared,
    next_tick, updated_at
)
values (
    :shard, :tenant, :schedule, :cron, :zone, :kind, :queue, :payload, :options, :catch_up, :catch_up_most,
    :declared, :next_tick, :now
)
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
        when (onefold_schedule.cron, onefold_schedule.zone) = (excluded.cron, excluded.zone)
            then onefold_schedule.next_tick
        else excluded.next_tick
    end,
    updated_at = excluded.updated_at
where
    (onefold_schedule.declared or not excluded.declared)
    and (
        onefold_schedule.cron, onefold_schedule.zone, onefold_schedule.kind, onefold_schedule.queue,
        onefold_schedule.payload, onefold_schedule.options, onefold_schedule.catch_up,
        onefold_schedule.catch_up_most, onefold_schedule.declared
    ) is not (
        excluded.cron, excluded.zone, excluded.kind, excluded.queue, excluded.payload,
        excluded.options, excluded.catch_up, excluded.catch_up_most, excluded.declared
    )
