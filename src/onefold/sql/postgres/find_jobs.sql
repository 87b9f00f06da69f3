-- Jobs by filter, in the order of their ids, between two ids. A null filter matches everything. The operation
-- changes the conditions on the id and the order for an index, or for the newest first. Long values are only
-- read for whole jobs.
select
    j.id::text, j.tenant, j.queue, j.kind, j.priority, j.run_at, j.attempt, j.max_attempts, j.fence,
    case when :whole::boolean then j.payload else '' end,
    j.unique_key, j.generation, j.created_at, j.expires_at, j.error, j.options, j.group_key,
    j.defers, j.taken_at, j.lease_until, j.worker, j.state, j.ended_at,
    case when :whole::boolean then j.result end,
    j.reason, clock.now,
    j.awaiting, j.pushed
from
    (select coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint))
        as clock (now),
    onefold.job as j
where
    j.shard = :shard::smallint
    and j.id > :after::text::uuid
    and j.id < :before::text::uuid
    and j.tenant = :tenant::text
    and not j.stripped
    and (:states::smallint[] is null or j.state = any(:states::smallint[]))
    and (:queue::text is null or j.queue = :queue::text)
    and (:kind::text is null or j.kind = :kind::text)
    and (:unique_key::text is null or j.unique_key = :unique_key::text)
    and (:reason::text is null or j.reason = :reason::text)
    and (:error_type::text is null or j.error::jsonb ->> 'type' = :error_type::text)
    and (:created_from::bigint is null or j.created_at >= :created_from::bigint)
    and (:created_before::bigint is null or j.created_at < :created_before::bigint)
    and (:ended_from::bigint is null or j.ended_at >= :ended_from::bigint)
    and (:ended_before::bigint is null or j.ended_at < :ended_before::bigint)
    and (:tag::text is null or j.options::jsonb -> 'tags' @> to_jsonb(:tag::text))
    and (:retrying::boolean is null or (j.attempt > 0) = :retrying::boolean)
    and (:due::boolean is null or (j.run_at <= clock.now) = :due::boolean)
    and (not :awaiting::boolean or j.awaiting = j.fence)
order by j.id
limit :limit::integer
