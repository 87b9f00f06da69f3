-- The holders of a key of a tenant: jobs by their unique key, and claims of any surface. One index
-- lookup per kind, surface and scope, in onefold_job_unique and the primary key of claims: the key is
-- the last column of both, and an index that begins with it would slow down every claim. Claims of jobs,
-- schedules and chores are returned only if their surface is given.
select *
from (
    with recursive kind (name) as (
        select (
            select min(j.unique_kind)
            from onefold_job as j
            where
                (:surface is null or :surface = 'job')
                and j.shard = :shard
                and j.tenant = :tenant
                and j.unique_key is not null
                and not j.yielded
                and (j.unique_until is not null or (j.unique_states >> j.state) & 1 = 1)
        )
        union all
        select (
            select min(j.unique_kind)
            from onefold_job as j
            where
                j.shard = :shard
                and j.tenant = :tenant
                and j.unique_kind > kind.name
                and j.unique_key is not null
                and not j.yielded
                and (j.unique_until is not null or (j.unique_states >> j.state) & 1 = 1)
        )
        from kind
        where kind.name is not null
    ),
    surface (name) as (
        select (select min(c.surface) from onefold_claim as c where c.shard = :shard and c.tenant = :tenant)
        union all
        select (
            select min(c.surface)
            from onefold_claim as c
            where c.shard = :shard and c.tenant = :tenant and c.surface > surface.name
        )
        from surface
        where surface.name is not null
    ),
    place (surface, scope) as (
        select
            surface.name,
            case
                when :scope is not null then :scope
                else (
                    select min(c.scope)
                    from onefold_claim as c
                    where c.shard = :shard and c.tenant = :tenant and c.surface = surface.name
                )
            end
        from surface
        where
            case
                when :surface is null then surface.name not in ('chore', 'cron', 'step')
                else surface.name = :surface
            end
        union all
        select
            place.surface,
            (
                select min(c.scope)
                from onefold_claim as c
                where
                    c.shard = :shard
                    and c.tenant = :tenant
                    and c.surface = place.surface
                    and c.scope > place.scope
            )
        from place
        where :scope is null and place.scope is not null
    )
    select
        'job', j.unique_kind, j.state, j.fence, j.fingerprint, j.created_at, j.unique_until,
        j.expires_at, j.unique_states, j.id, :now
    from kind
    cross join onefold_job as j
        on j.shard = :shard
        and j.tenant = :tenant
        and j.unique_kind = kind.name
        and j.unique_key = :key
        and j.unique_key is not null
        and not j.yielded
        and (j.unique_until is not null or (j.unique_states >> j.state) & 1 = 1)
    where :scope is null or kind.name = :scope
    union all
    select
        c.surface, c.scope, c.state, c.fence, c.fingerprint, c.created_at, c.lease_until,
        c.expires_at, c.takeover, case when c.surface = 'publish' then c.result end, :now
    from place
    cross join onefold_claim as c
        on c.shard = :shard
        and c.tenant = :tenant
        and c.surface = place.surface
        and c.scope = place.scope
        and c.key = :key
)
