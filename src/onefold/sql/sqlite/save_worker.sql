-- Store that a worker runs, or that it still does.
insert into onefold_worker (
    shard, id, name, host, pid, queues, concurrency, started_at, seen_at
)
values (:shard, :id, :worker, :host, :pid, :queues, :concurrency, :now, :now)
on conflict (shard, id) do update
set queues = excluded.queues, seen_at = excluded.seen_at
