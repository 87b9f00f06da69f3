-- The claim of a key. Uses the primary key.
select
    c.id::text, c.owner::text, c.state, c.fence, c.fingerprint, c.takeover, c.lease_until,
    c.expires_at, c.result,
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint),
    c.created_at
from onefold.claim as c
where
    c.shard = :shard::smallint
    and c.tenant = :tenant::text
    and c.surface = :surface::text
    and c.scope = :scope::text
    and c.key = :key::text
