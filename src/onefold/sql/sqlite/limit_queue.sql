-- Set the limits of a queue as a whole, for the server. The limits and the order of its groups stay.
-- Returns the period of the groups' rate.
insert into onefold_queue (
    shard, name, declared, controlled, concurrency, rate_count, rate_period, updated_at
)
values (:shard, :queue, not :limited, :limited, :concurrency, :rate_count, :rate_period, :now)
on conflict (shard, name) do update
set declared = not (
        :limited
        or onefold_queue.ordered
        or onefold_queue.group_concurrency is not null
        or onefold_queue.group_rate_count is not null
    ),
    controlled = :limited
        or onefold_queue.ordered
        or onefold_queue.group_concurrency is not null
        or onefold_queue.group_rate_count is not null
        or onefold_queue.held_until is not null,
    concurrency = excluded.concurrency,
    rate_count = excluded.rate_count,
    rate_period = excluded.rate_period,
    updated_at = excluded.updated_at
returning group_rate_period
