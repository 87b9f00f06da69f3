-- Jobs by filter, in the order of their ids, between two ids. A null filter matches everything. The operation
-- changes the conditions on the id and the order for an index, or for the newest first. Long values are only
-- read for whole jobs.
select
    j.id, j.tenant, j.queue, j.kind, j.priority, j.run_at, j.attempt, j.max_attempts, j.fence,
    case when :whole then j.payload else '' end,
    j.unique_key, j.generation, j.created_at, j.expires_at, j.error, j.options, j.group_key,
    j.defers, j.taken_at, j.lease_until, j.worker, j.state, j.ended_at,
    case when :whole then j.result end,
    j.reason, :now,
    j.awaiting, j.pushed
from onefold_job as j
where
    j.shard = :shard
    and j.id > :after
    and j.id < :before
    and j.tenant = :tenant
    and not j.stripped
    and (:states is null or j.state in (select value from json_each(:states)))
    and (:queue is null or j.queue = :queue)
    and (:kind is null or j.kind = :kind)
    and (:unique_key is null or j.unique_key = :unique_key)
    and (:reason is null or j.reason = :reason)
    and (:error_type is null or json_extract(j.error, '$.type') = :error_type)
    and (:created_from is null or j.created_at >= :created_from)
    and (:created_before is null or j.created_at < :created_before)
    and (:ended_from is null or j.ended_at >= :ended_from)
    and (:ended_before is null or j.ended_at < :ended_before)
    and (:tag is null or :tag in (select value from json_each(j.options, '$.tags')))
    and (:retrying is null or (j.attempt > 0) = :retrying)
    and (:due is null or (j.run_at <= :now) = :due)
    and (not :awaiting or j.awaiting = j.fence)
order by j.id
limit :limit
