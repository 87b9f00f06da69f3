-- End the hold of a queue, if it is the one that was read, and reset the failures of its endpoint. The
-- plain take reads the queue again, unless it has limits.
update onefold.queue as q
set
    held_until = null,
    held_why = null,
    failures = 0,
    controlled = q.ordered
        or q.concurrency is not null
        or q.rate_count is not null
        or q.group_concurrency is not null
        or q.group_rate_count is not null,
    updated_at = clock.now
from
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
        as clock (now)
where
    q.shard = :shard::smallint
    and q.name = :queue::text
    and q.held_until is not distinct from :held_until::bigint
returning q.name
