-- Create a queue of the server, unless one with that name exists.
insert into onefold_served_queue (shard, tenant, name, settings, created_at, updated_at)
values (:shard, :tenant, :served, :settings, :now, :now)
on conflict (shard, tenant, name) do nothing
returning name
