-- Pause or resume a queue. Its limits stay as they are.
insert into onefold_queue (shard, name, paused, declared, updated_at)
values (:shard, :queue, :paused, true, :now)
on conflict (shard, name) do update
set paused = excluded.paused,
    updated_at = excluded.updated_at
