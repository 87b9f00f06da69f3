-- Begin a step of a delivery whose fence is still valid, or store a step that has ended. A step that
-- exists already is not returned. The job's row has a shared lock until the commit: no worker can take
-- the job meanwhile, and concurrent steps do not wait for each other.
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
insert into onefold.claim (
    shard, tenant, surface, scope, key, id, owner, state, takeover, fence, created_at, settled_at,
    fingerprint, result
)
select
    d.shard, d.tenant, 'step', :job::text, :key::text, :owner::text::uuid, :owner::text::uuid,
    :state::smallint, :takeover::smallint, :fence::bigint, clock.now,
    case when :state::smallint = 1 then clock.now end, :fingerprint::text, :result::text
from
    delivery as d,
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
        as clock (now)
on conflict do nothing
returning
    key, owner::text, state, fence, fingerprint, takeover, created_at, settled_at, result
