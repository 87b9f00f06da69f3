-- Let publish keys that were claimed in this transaction return the job that holds the unique key.
update onefold.claim as c
set result = r.result
from unnest(
    :tenant::text[], :surface::text[], :scope::text[], :key::text[],
    :owner::text[], :result::text[]
) as r (tenant, surface, scope, key, owner, result)
where
    c.shard = (:shard::smallint[])[1]
    and c.tenant = r.tenant
    and c.surface = r.surface
    and c.scope = r.scope
    and c.key = r.key
    and c.owner = r.owner::uuid
