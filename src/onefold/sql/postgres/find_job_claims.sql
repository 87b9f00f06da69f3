-- The claims that jobs have made: their steps and their once calls. It looks them up job by job, in the
-- order of the primary key, and reads no claims of other scopes.
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
