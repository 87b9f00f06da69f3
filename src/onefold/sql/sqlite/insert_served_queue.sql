-- Make a queue of the server, unless there is one of that name.
insert into onefold_served_queue (shard, tenant, name, settings, created_at, updated_at)
values (:shard, :tenant, :served, :settings, :now, :now)
on conflict (shard, tenant, name) do nothing
returning name
