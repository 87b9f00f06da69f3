-- Insert a row for a queue without settings, so that it can be locked.
insert into onefold.queue (shard, name, declared, updated_at)
values (
    :shard::smallint, :queue::text, true,
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
)
on conflict (shard, name) do nothing
