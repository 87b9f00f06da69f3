-- The settings of a queue. SQLite has one writer, and needs no lock: one take at a time.
select
    q.paused, q.ordered, q.concurrency, q.rate_count, q.rate_period, q.group_concurrency,
    q.group_rate_count, q.group_rate_period, q.held_until, :now
from onefold_queue as q
where q.shard = :shard and q.name = :queue
