-- Pause a schedule, or let it go on from another tick. One that is so already is left out of the answer.
update onefold_schedule
set paused = :paused, next_tick = coalesce(:next_tick, next_tick), updated_at = :now
where shard = :shard and tenant = :tenant and name = :schedule and paused <> :paused
returning name
