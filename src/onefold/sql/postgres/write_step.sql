-- Take a step over, or store how it ended, if it has not changed since it was read and the fence of its
-- delivery is still valid. The job's row has a shared lock until the commit, so that no worker can take
-- the job meanwhile.
with delivery as materialized (
    select j.shard, j.tenant
    from onefold.job as j
    where
        j.shard = :shard::smallint
        and j.id = :job::text::uuid
        and j.fence = :fence::bigint
        and (j.state = 1 or not :running::boolean)
    for share of j
)
update onefold.claim as c
set
    id = :owner::text::uuid,
    owner = :owner::text::uuid,
    state = :state::smallint,
    takeover = :takeover::smallint,
    fence = :fence::bigint,
    created_at = case when c.owner = :owner::text::uuid then c.created_at else clock.now end,
    lease_until = null,
    settled_at = case when :state::smallint = 1 then clock.now end,
    expires_at = null,
    fingerprint = :fingerprint::text,
    result = :result::text
from
    delivery as d,
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
        as clock (now)
where
    c.shard = :shard::smallint
    and c.tenant = d.tenant
    and c.surface = 'step'
    and c.scope = :job::text
    and c.key = :key::text
    and c.owner = :seen_owner::text::uuid
    and c.state = :seen_state::smallint
returning
    c.key, c.owner::text, c.state, c.fence, c.fingerprint, c.takeover, c.created_at, c.settled_at,
    c.result
