-- Store that a worker runs, or that it still does. The wait for a lock is short.
insert into onefold.worker (
    shard, id, name, host, pid, queues, kinds, concurrency, started_at, seen_at
)
select
    :shard::smallint, :id::uuid, :worker::text, :host::text, :pid::integer, :queues::text,
    :kinds::text, :concurrency::integer, clock.now, clock.now
from
    (select coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint))
        as clock (now),
    (select set_config('lock_timeout', '50', true)) as patience (set)
on conflict (shard, id) do update
set queues = excluded.queues, kinds = excluded.kinds, seen_at = excluded.seen_at
