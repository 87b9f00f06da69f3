-- The surfaces on which a tenant has keys, from a given one: one lookup in the primary key of claims for
-- each.
select *
from (
    with recursive surface (name) as (
        select (
            select min(c.surface)
            from onefold_claim as c
            where c.shard = :shard and c.tenant = :tenant and c.surface >= :after_surface
        )
        union all
        select (
            select min(c.surface)
            from onefold_claim as c
            where c.shard = :shard and c.tenant = :tenant and c.surface > surface.name
        )
        from surface
        where surface.name is not null
    )
    select surface.name from surface where surface.name is not null
)
