-- The queues that have limits or a state, or the one with the given name, as rows of `Queue`; they may also be saved.
select
    q.name, null, null, null, q.paused, q.held_until, q.held_why, q.failures, q.declared, q.ordered,
    q.concurrency, q.rate_count, q.rate_period, q.group_concurrency, q.group_rate_count,
    q.group_rate_period
from onefold_queue as q
where q.shard = :shard and (:queue is null or q.name = :queue)
order by q.name
