-- The workers, and the time.
select
    w.name, w.host, w.pid, w.queues, w.kinds, w.concurrency, w.started_at, w.seen_at,
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
from onefold.worker as w
where w.shard = :shard::smallint
