-- Store when each schedule is due again, and its last tick that got a job.
update onefold.schedule as s
set next_tick = r.next_tick, last_tick = coalesce(r.last_tick, s.last_tick)
from unnest(
    :tenant::text[], :name::text[], :next_tick::bigint[], :last_tick::bigint[]
) as r (tenant, name, next_tick, last_tick)
where s.shard = (:shard::smallint[])[1] and s.tenant = r.tenant and s.name = r.name
