-- The oldest waiting job of each of these groups, and whether it is due.
select
    head.priority, head.run_at, head.id::text, head.shard, head.group_key,
    head.run_at <= clock.now
    and (head.expires_at is null or head.expires_at > clock.now)
    and not (head.kind = any(:unknown::text[]))
from unnest(:groups::text[]) as g (key)
cross join lateral (
    select j.priority, j.run_at, j.id, j.shard, j.group_key, j.expires_at, j.kind
    from onefold.job as j
    where
        j.shard = :shard::smallint
        and j.queue = :queue::text
        and j.state = 0
        and j.group_key = g.key
    -- The expression of job_group_order: the order of enqueues.
    order by substr(cast(j.id as text), 1, 13) || substr(cast(j.id as text), 20)
    limit 1
) as head
cross join
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
        as clock (now)
