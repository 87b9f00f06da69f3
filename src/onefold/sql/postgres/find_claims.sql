-- The claims of some keys. A key without a claim returns nulls. Uses the primary key.
select
    r.place - 1, c.id::text, c.owner::text, c.state, c.fence, c.fingerprint, c.takeover,
    c.lease_until, c.expires_at, c.result,
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
from
    unnest(:tenant::text[], :surface::text[], :scope::text[], :key::text[])
        with ordinality as r (tenant, surface, scope, key, place)
left join lateral (
    select *
    from onefold.claim as k
    where
        k.shard = (:shard::smallint[])[1]
        and k.tenant = r.tenant
        and k.surface = r.surface
        and k.scope = r.scope
        and k.key = r.key
    limit 1
) as c on true
order by r.place
