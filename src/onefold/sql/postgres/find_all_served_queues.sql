-- The saved queues of all tenants, or those that have an endpoint, with their state.
select
    case when s.tenant = '' then s.name else '{' || s.tenant || '}' || s.name end,
    s.settings, s.created_at, s.updated_at, coalesce(q.paused, false), q.held_until, q.held_why,
    coalesce(q.failures, 0), coalesce(q.declared, true), coalesce(q.ordered, false), q.concurrency,
    q.rate_count, q.rate_period, q.group_concurrency, q.group_rate_count, q.group_rate_period
from (
    select served.tenant, served.name, served.settings, served.created_at, served.updated_at
    from onefold.served_queue as served
    where
        served.shard = :shard::smallint
        and (not :pushed::boolean or served.settings::jsonb ->> 'endpoint' is not null)
) as s
left join onefold.queue as q
    on q.shard = :shard::smallint
    and q.name = case when s.tenant = '' then s.name else '{' || s.tenant || '}' || s.name end
