-- The keys of a tenant on one surface, for an operator: from a position, in the order of the primary
-- key. With a given key, it makes one index lookup per scope.
select *
from (
    with recursive scope (name) as (
        select
            case
                when :scope is not null then :scope
                else (
                    select min(c.scope)
                    from onefold_claim as c
                    where
                        c.shard = :shard
                        and c.tenant = :tenant
                        and c.surface = :surface
                        and c.scope >= :after_scope
                )
            end
        where :key is not null
        union all
        select (
            select min(c.scope)
            from onefold_claim as c
            where
                c.shard = :shard
                and c.tenant = :tenant
                and c.surface = :surface
                and c.scope > scope.name
        )
        from scope
        where :scope is null and scope.name is not null
    ),
    listed as not materialized (
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
            and c.surface = :surface
            and (c.scope, c.key) > (:after_scope, :after_key)
    )
    select
        tenant, surface, scope, key, standing, fence, takeover, created_at, lease_until, settled_at,
        expires_at, case when :results then result end
    from (
        select *
        from (
            select l.*
            from listed as l
            where
                :key is null
                -- A blob is greater than every text.
                and l.scope <= coalesce(:scope, x'')
                and (:state is null or l.standing = :state)
            order by l.scope, l.key
            limit :limit
        )
        union all
        select *
        from (
            select l.*
            from scope
            cross join listed as l on l.scope = scope.name and l.key = :key
            where :state is null or l.standing = :state
            limit :limit
        )
    )
    order by scope, key
    limit :limit
)
