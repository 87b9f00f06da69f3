-- Create a queue of the server, unless one with that name exists.
insert into onefold.served_queue (shard, tenant, name, settings, created_at, updated_at)
values (
    :shard::smallint, :tenant::text, :served::text, :settings::text,
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint),
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
)
on conflict (shard, tenant, name) do nothing
returning served_queue.name
