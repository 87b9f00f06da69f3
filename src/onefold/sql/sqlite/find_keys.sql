-- The keys of a tenant, for its operator: from a place on, in the order of the primary key. Those that
-- belong to jobs, schedules and chores are shown to who asks for their surface.
select
    tenant, surface, scope, key, standing, fence, takeover, created_at, lease_until, settled_at,
    expires_at, case when :results then result end
from (
    select
        c.*,
        case
            when c.state = 2 then 'free'
            when c.state = 1 and c.expires_at <= :now and c.surface <> 'publish' then 'expired'
            when c.state = 1 then 'settled'
            when c.lease_until > :now then 'held'
            when c.takeover = 2 then 'unknown'
            else 'abandoned'
        end as standing
    from onefold_claim as c
    where
        c.shard = :shard
        and c.tenant = :tenant
        and (c.surface, c.scope, c.key) > (:after_surface, :after_scope, :after_key)
        and case
            when :surface is null then c.surface not in ('chore', 'cron', 'step')
            else c.surface = :surface
        end
        and (:scope is null or c.scope = :scope)
        and (:key is null or c.key = :key)
)
where :state is null or standing = :state
order by surface, scope, key
limit :limit
