-- Count a failure of a queue's endpoint.
insert into onefold_queue (shard, name, declared, failures, updated_at)
values (:shard, :queue, true, 1, :now)
on conflict (shard, name) do update
set failures = onefold_queue.failures + 1,
    updated_at = excluded.updated_at
returning failures
