-- A row for a queue that nobody has said anything about, to be locked.
insert into onefold_queue (shard, name, declared, updated_at)
values (:shard, :queue, true, :now)
on conflict (shard, name) do nothing
