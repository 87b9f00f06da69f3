-- Store when each schedule is due again, and its last tick that got a job.
update onefold_schedule
set next_tick = r.next_tick, last_tick = coalesce(r.last_tick, onefold_schedule.last_tick)
from (
    select
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as tenant,
        json_extract(value, '$[2]') as name,
        json_extract(value, '$[3]') as next_tick,
        json_extract(value, '$[4]') as last_tick
    from json_each(:rows)
) as r
where
    onefold_schedule.shard = r.shard
    and onefold_schedule.tenant = r.tenant
    and onefold_schedule.name = r.name
