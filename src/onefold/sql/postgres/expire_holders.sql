-- Bury queued holders that have expired, before a rescue does: an enqueue must not return a job that
-- will never run. Locks the rows in (shard, id) order.
with expired as materialized (
    select j.id
    from onefold.job as j
    where
        j.shard = (:shard::smallint[])[1]
        and j.id = any((:id::text[])::uuid[])
        and j.state = 0
        and j.expires_at <= :at::bigint
    order by j.shard, j.id
    for update of j
)
update onefold.job as j
set
    state = 3,
    vanished = 0,
    not_before = null,
    reason = 'expired',
    ended_at = :at::bigint,
    keep_until = :at::bigint + coalesce((j.options::jsonb #>> '{keep,dead}')::bigint, :keep::bigint),
    -- A successor gets the key.
    yielded = j.yielded or j.next is not null
where j.shard = (:shard::smallint[])[1] and j.id = any(array(select expired.id from expired))
returning j.id::text, j.next
