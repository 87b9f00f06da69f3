-- The surfaces on which a tenant has keys, from a given one: one lookup in the primary key of claims for
-- each.
with recursive surface (name) as (
    select (
        select min(c.surface)
        from onefold.claim as c
        where
            c.shard = :shard::smallint
            and c.tenant = :tenant::text
            and c.surface >= :after_surface::text
    )
    union all
    select (
        select min(c.surface)
        from onefold.claim as c
        where
            c.shard = :shard::smallint
            and c.tenant = :tenant::text
            and c.surface > surface.name
    )
    from surface
    where surface.name is not null
)
select surface.name from surface where surface.name is not null
