-- Take a step over, or store how it ended, if it has not changed since it was read and the fence of its
-- claim is still valid. The claim's row has a shared lock until the commit, so that no attempt can take
-- the claim over meanwhile.
with parent as materialized (
    select p.tenant
    from onefold.claim as p
    where
        p.shard = :shard::smallint
        and p.tenant = :tenant::text
        and p.surface = :surface::text
        and p.scope = :scope::text
        and p.key = :key::text
        and p.state = 0
        and p.fence = :fence::bigint
        and p.owner = :owner::text::uuid
    for share of p
)
update onefold.claim as c
set
    id = :step_owner::text::uuid,
    owner = :step_owner::text::uuid,
    state = :state::smallint,
    takeover = :takeover::smallint,
    fence = :fence::bigint,
    created_at = case when c.owner = :step_owner::text::uuid then c.created_at else clock.now end,
    settled_at = case when :state::smallint = 1 then clock.now end,
    fingerprint = :fingerprint::text,
    result = :result::text
from
    parent as p,
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
        as clock (now)
where
    c.shard = :shard::smallint
    and c.tenant = p.tenant
    and c.surface = 'step'
    and c.scope = :steps::text
    and c.key = :step::text
    and c.owner = :seen_owner::text::uuid
    and c.state = :seen_state::smallint
returning
    c.key, c.owner::text, c.state, c.fence, c.fingerprint, c.takeover, c.created_at, c.settled_at,
    c.result
