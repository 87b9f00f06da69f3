-- Store that a worker runs, or that it still does.
insert into onefold_worker (
    shard, id, name, host, pid, queues, kinds, concurrency, started_at, seen_at
)
values (:shard, :id, :worker, :host, :pid, :queues, :kinds, :concurrency, :now, :now)
on conflict (shard, id) do update
set queues = excluded.queues, kinds = excluded.kinds, seen_at = excluded.seen_at
