-- Insert a row for a queue without settings, so that it can be locked.
insert into onefold_queue (shard, name, declared, updated_at)
values (:shard, :queue, true, :now)
on conflict (shard, name) do nothing
