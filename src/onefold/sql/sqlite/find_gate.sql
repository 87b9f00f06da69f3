-- Whether a queue is held and why, and the number of consecutive failures of its endpoint. Uses the
-- primary key.
select q.held_until, q.held_why, q.failures, :now
from onefold_queue as q
where q.shard = :shard and q.name = :queue
