-- Whole jobs by id, without tombstones. Uses the primary key.
select
    j.id, j.shard, j.tenant, j.queue, j.kind, j.state, j.priority, j.run_at, j.attempt,
    j.max_attempts, j.fence, j.lease_until, j.worker, j.payload, j.unique_key, j.unique_kind,
    j.generation, j.created_at, j.ended_at, j.keep_until, j.expires_at, j.result, j.error,
    j.reason, j.options, j.group_key, j.taken_at, j.defers, :now, j.awaiting, j.pushed
from (
    select
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as id
    from json_each(:rows)
) as r
cross join onefold_job as j on j.shard = r.shard and j.id = r.id
where j.tenant = :tenant and not j.stripped
