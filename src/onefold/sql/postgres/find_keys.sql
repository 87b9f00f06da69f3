-- The keys of a tenant on one surface, for an operator: from a position, in the order of the primary
-- key. Row by row, because a plan for an unknown limit would read and sort all rows. With a given key,
-- it makes one index lookup per scope.
with recursive clock (now) as materialized (
    select coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
),
scope (name) as (
    select
        case
            when :scope::text is not null then :scope::text collate "C"
            else (
                select min(c.scope)
                from onefold.claim as c
                where
                    c.shard = :shard::smallint
                    and c.tenant = :tenant::text
                    and c.surface = :surface::text
                    and c.scope >= :after_scope::text
            )
        end
    where :key::text is not null
    union all
    select (
        select min(c.scope)
        from onefold.claim as c
        where
            c.shard = :shard::smallint
            and c.tenant = :tenant::text
            and c.surface = :surface::text
            and c.scope > scope.name
    )
    from scope
    where :scope::text is null and scope.name is not null
),
found (scope, key, place) as (
    select :after_scope::text collate "C", :after_key::text collate "C", 0
    where :key::text is null
    union all
    select next.scope, next.key, found.place + 1
    from
        found
        cross join lateral (
            select c.scope, c.key
            from
                onefold.claim as c
                cross join clock
            where
                c.shard = :shard::smallint
                and c.tenant = :tenant::text
                and c.surface = :surface::text
                and (c.scope, c.key) > (found.scope, found.key)
                -- After every scope: longer, and made of the last character.
                and c.scope <= coalesce(:scope::text, repeat(chr(1114111), 200))
                and (
                    :state::text is null
                    or :state::text = case
                        when c.state = 2 then 'free'
                        when c.state = 1 and c.expires_at <= clock.now and c.surface <> 'publish'
                            then 'expired'
                        when c.state = 1 then 'settled'
                        when c.lease_until > clock.now then 'held'
                        when c.takeover = 2 then 'unknown'
                        else 'abandoned'
                    end
                )
            order by c.scope, c.key
            limit 1
        ) as next
    where found.place < :limit::integer
),
wanted (scope, key) as (
    select found.scope, found.key from found where found.place > 0
    union all
    select scope.name, :key::text from scope where scope.name is not null
)
select
    c.tenant, c.surface, c.scope, c.key, s.state, c.fence, c.takeover, c.created_at, c.lease_until,
    c.settled_at, c.expires_at, case when :results::boolean then c.result end
from
    clock
    cross join wanted as w
    cross join lateral (
        select *
        from onefold.claim as c
        where
            c.shard = :shard::smallint
            and c.tenant = :tenant::text
            and c.surface = :surface::text
            and c.scope = w.scope
            and c.key = w.key
        limit 1
    ) as c
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
    (c.scope, c.key) > (:after_scope::text, :after_key::text)
    and (:state::text is null or s.state = :state::text)
order by c.scope, c.key
limit :limit::integer
