-- The keys of a tenant, for its operator: from a place on, in the order of the primary key. Those that
-- belong to jobs, schedules and chores are shown to who asks for their surface.
select
    c.tenant, c.surface, c.scope, c.key, s.state, c.fence, c.takeover, c.created_at, c.lease_until,
    c.settled_at, c.expires_at, case when :results::boolean then c.result end
from
    onefold.claim as c
    cross join coalesce(
        :now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint
    ) as clock (now)
    cross join lateral (
        select
            case
                when c.state = 2 then 'free'
                when c.state = 1 and c.expires_at <= clock.now and c.surface <> 'publish' then 'expired'
                when c.state = 1 then 'settled'
                when c.lease_until > clock.now then 'held'
                when c.takeover = 2 then 'unknown'
                else 'abandoned'
            end
    ) as s (state)
where
    c.shard = :shard::smallint
    and c.tenant = :tenant::text
    and (c.surface, c.scope, c.key) > (:after_surface::text, :after_scope::text, :after_key::text)
    and case
        when :surface::text is null then c.surface not in ('chore', 'cron', 'step')
        else c.surface = :surface::text
    end
    and (:scope::text is null or c.scope = :scope::text)
    and (:key::text is null or c.key = :key::text)
    and (:state::text is null or s.state = :state::text)
order by c.surface, c.scope, c.key
limit :limit::integer
