-- The queues that have settings.
select
    q.name, q.paused, q.declared, q.ordered, q.concurrency, q.rate_count, q.rate_period,
    q.group_concurrency, q.group_rate_count, q.group_rate_period, q.held_until, q.held_why
from onefold.queue as q
where q.shard = :shard::smallint
order by q.name
