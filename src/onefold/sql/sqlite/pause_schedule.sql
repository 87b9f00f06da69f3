-- Pause a schedule, or resume it from a given tick. A schedule that is in that state already is not
-- returned.
update onefold_schedule
set paused = :paused, next_tick = coalesce(:next_tick, next_tick), updated_at = :now
where shard = :shard and tenant = :tenant and name = :schedule and paused <> :paused
returning name
