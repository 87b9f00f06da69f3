-- Whether a queue is held and why, and the number of consecutive failures of its endpoint. Uses the
-- primary key.
select
    q.held_until, q.held_why, q.failures,
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
from onefold.queue as q
where q.shard = :shard::smallint and q.name = :queue::text
