-- The workers, and the time.
select w.name, w.host, w.pid, w.queues, w.kinds, w.concurrency, w.started_at, w.seen_at, :now
from onefold_worker as w
where w.shard = :shard
