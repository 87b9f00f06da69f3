-- The current state of the jobs of some deliveries, tombstones included.
select j.id, j.state, j.fence, j.lease_until, j.attempt, j.run_at, j.awaiting = j.fence, :now
from (
    select
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as id
    from json_each(:rows)
) as r
cross join onefold_job as j on j.shard = r.shard and j.id = r.id
