-- The holders of a key of a tenant: jobs by their unique key, and claims of any surface. One index
-- lookup in onefold_job_unique, and one per surface and scope in the primary key of claims: the key is its
-- last column, and an index that begins with it would slow down every claim. Claims of jobs, schedules and
-- chores are returned only if their surface is given.
select *
from (
    with recursive surface (name) as (
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
    from onefold_job as j
    where
        (:surface is null or :surface = 'job')
        and (:scope is null or j.unique_kind = :scope)
        and j.shard = :shard
        and j.tenant = :tenant
        and j.unique_key = :key
        and j.unique_key is not null
        and not j.yielded
        and (j.unique_until is not null or (j.unique_states >> j.state) & 1 = 1)
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
