-- Count a failure of a queue's endpoint.
insert into onefold.queue (shard, name, declared, failures, updated_at)
values (
    :shard::smallint, :queue::text, true, 1,
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
)
on conflict (shard, name) do update
set failures = queue.failures + 1,
    updated_at = excluded.updated_at
returning queue.failures
