-- Remove the claims that jobs have made for themselves, with the jobs: their steps, and what they did
-- once.
delete from onefold.claim as c
using unnest(:tenant::text[], :scope::text[]) as r (tenant, scope)
where
    c.shard = (:shard::smallint[])[1]
    and c.tenant = r.tenant
    and c.surface in ('once', 'step')
    and c.scope = r.scope
