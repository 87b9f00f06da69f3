-- The claims that jobs have made for themselves: their steps, and what they did once. Looked up job by
-- job, in the order of the primary key, however many claims of other scopes there are.
select step.tenant, step.surface, step.scope, step.key
from
    unnest(:tenant::text[], :scope::text[]) as r (tenant, scope)
    cross join unnest(array['once', 'step']) as own (surface)
    cross join lateral (
        select c.tenant, c.surface, c.scope, c.key
        from onefold.claim as c
        where
            c.shard = (:shard::smallint[])[1]
            and c.tenant = r.tenant
            and c.surface = own.surface
            and c.scope = r.scope
        order by c.key
    ) as step
