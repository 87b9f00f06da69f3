-- End the hold of a queue, if it is the one that was read, and reset the failures of its endpoint. The
-- plain take reads the queue again, unless it has limits.
update onefold_queue
set
    held_until = null,
    held_why = null,
    failures = 0,
    controlled = ordered
        or concurrency is not null
        or rate_count is not null
        or group_concurrency is not null
        or group_rate_count is not null,
    updated_at = :now
where shard = :shard and name = :queue and held_until is :held_until
returning name
