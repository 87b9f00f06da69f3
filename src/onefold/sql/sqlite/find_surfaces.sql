-- The surfaces on which a tenant has keys, from one on: a probe of the claims' primary key for each.
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
