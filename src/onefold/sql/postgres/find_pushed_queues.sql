-- The queues of all tenants that have an endpoint, with their state.
select
    s.tenant, s.name, s.settings, s.created_at, s.updated_at, coalesce(q.paused, false), q.held_until,
    q.held_why, coalesce(q.failures, 0)
from (
    select served.tenant, served.name, served.settings, served.created_at, served.updated_at
    from onefold.served_queue as served
    where served.shard = :shard::smallint and served.settings::jsonb ->> 'endpoint' is not null
) as s
left join onefold.queue as q
    on q.shard = :shard::smallint
    and q.name = case when s.tenant = '' then s.name else '{' || s.tenant || '}' || s.name end
