-- The settings of a queue, locked while its limits are counted: one take at a time. The row is on the
-- shard of the queue's name.
select
    q.paused, q.ordered, q.concurrency, q.rate_count, q.rate_period, q.group_concurrency,
    q.group_rate_count, q.group_rate_period, q.held_until,
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
from onefold.queue as q
where q.shard = :shard::smallint and q.name = :queue::text
order by q.shard, q.name
for update
