-- Pause or resume a queue. Its limits stay as they are.
insert into onefold.queue (shard, name, paused, declared, updated_at)
values (
    :shard::smallint, :queue::text, :paused::boolean, true,
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
)
on conflict (shard, name) do update
set paused = excluded.paused,
    updated_at = excluded.updated_at
