-- Store the limits of a queue. Limits that code declares do not replace those of an operator.
insert into onefold_queue (
    shard, name, declared, controlled, ordered, concurrency, rate_count, rate_period,
    group_concurrency, group_rate_count, group_rate_period, updated_at
)
values (
    :shard, :queue, :declared, :controlled, :ordered, :concurrency, :rate_count, :rate_period,
    :group_concurrency, :group_rate_count, :group_rate_period, :now
)
on conflict (shard, name) do update
set declared = excluded.declared,
    controlled = excluded.controlled or onefold_queue.held_until is not null,
    ordered = excluded.ordered,
    concurrency = excluded.concurrency,
    rate_count = excluded.rate_count,
    rate_period = excluded.rate_period,
    group_concurrency = excluded.group_concurrency,
    group_rate_count = excluded.group_rate_count,
    group_rate_period = excluded.group_rate_period,
    updated_at = excluded.updated_at
where :force or onefold_queue.declared
returning name
