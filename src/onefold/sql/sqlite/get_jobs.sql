-- Whole jobs by id, without tombstones. Uses the primary key.
select
    j.id, j.tenant, j.queue, j.kind, j.priority, j.run_at, j.attempt, j.max_attempts, j.fence,
    j.payload, j.unique_key, j.generation, j.created_at, j.expires_at, j.error, j.options, j.group_key,
    j.defers, j.taken_at, j.lease_until, j.worker, j.state, j.ended_at, j.result, j.reason, :now,
    j.awaiting, j.pushed
from (
    select
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as id
    from json_each(:rows)
) as r
cross join onefold_job as j on j.shard = r.shard and j.id = r.id
where j.tenant = :tenant and not j.stripped
