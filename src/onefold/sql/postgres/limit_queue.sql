-- Set the limits of a queue as a whole, for the server. The limits and the order of its groups stay.
-- Returns the period of the groups' rate.
insert into onefold.queue (
    shard, name, declared, controlled, concurrency, rate_count, rate_period, updated_at
)
values (
    :shard::smallint, :queue::text, not :limited::boolean, :limited::boolean,
    :concurrency::integer, :rate_count::integer, :rate_period::bigint,
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
)
on conflict (shard, name) do update
set declared = not (
        :limited::boolean
        or queue.ordered
        or queue.group_concurrency is not null
        or queue.group_rate_count is not null
    ),
    controlled = :limited::boolean
        or queue.ordered
        or queue.group_concurrency is not null
        or queue.group_rate_count is not null
        or queue.held_until is not null,
    concurrency = excluded.concurrency,
    rate_count = excluded.rate_count,
    rate_period = excluded.rate_period,
    updated_at = excluded.updated_at
returning queue.group_rate_period
