-- Store the limits of a queue. Limits that code declares do not replace those of an operator.
insert into onefold.queue (
    shard, name, declared, controlled, ordered, concurrency, rate_count, rate_period,
    group_concurrency, group_rate_count, group_rate_period, updated_at
)
values (
    :shard::smallint, :queue::text, :declared::boolean, :controlled::boolean, :ordered::boolean,
    :concurrency::integer, :rate_count::integer, :rate_period::bigint, :group_concurrency::integer,
    :group_rate_count::integer, :group_rate_period::bigint,
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
)
on conflict (shard, name) do update
set declared = excluded.declared,
    controlled = excluded.controlled or queue.held_until is not null,
    ordered = excluded.ordered,
    concurrency = excluded.concurrency,
    rate_count = excluded.rate_count,
    rate_period = excluded.rate_period,
    group_concurrency = excluded.group_concurrency,
    group_rate_count = excluded.group_rate_count,
    group_rate_period = excluded.group_rate_period,
    updated_at = excluded.updated_at
where :force::boolean or queue.declared
returning queue.name
