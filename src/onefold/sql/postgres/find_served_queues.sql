-- The queues of a tenant on the server by name, or the one of that name, and how they stand: the engine's
-- row of the queue is on the same shard.
select
    s.tenant, s.name, s.settings, s.created_at, s.updated_at, coalesce(q.paused, false), q.held_until,
    q.held_why, coalesce(q.failures, 0)
from onefold.served_queue as s
left join onefold.queue as q
    on q.shard = :shard::smallint
    and q.name = case when s.tenant = '' then s.name else '{' || s.tenant || '}' || s.name end
where
    s.shard = :shard::smallint
    and s.tenant = :tenant::text
    and (:served::text is null or s.name = :served::text)
    and (:after::text is null or s.name > :after::text)
order by s.name
limit :limit::integer
