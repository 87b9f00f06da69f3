-- The holders of a key of a tenant: jobs by their unique key, and claims of any surface. One index
-- lookup in job_unique, and one per surface and scope in the primary key of claims: the key is its last
-- column, and an index that begins with it would slow down every claim. Claims of jobs, schedules and
-- chores are returned only if their surface is given.
with recursive surface (name) as (
    select (
        select min(c.surface)
        from onefold.claim as c
        where c.shard = :shard::smallint and c.tenant = :tenant::text
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
),
place (surface, scope) as (
    select
        surface.name,
        case
            when :scope::text is not null then :scope::text
            else (
                select min(c.scope)
                from onefold.claim as c
                where
                    c.shard = :shard::smallint
                    and c.tenant = :tenant::text
                    and c.surface = surface.name
            )
        end
    from surface
    where
        case
            when :surface::text is null then surface.name not in ('chore', 'cron', 'step')
            else surface.name = :surface::text
        end
    union all
    select
        place.surface,
        (
            select min(c.scope)
            from onefold.claim as c
            where
                c.shard = :shard::smallint
                and c.tenant = :tenant::text
                and c.surface = place.surface
                and c.scope > place.scope
        )
    from place
    where :scope::text is null and place.scope is not null
),
clock (now) as (
    select coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
)
select
    'job', j.unique_kind, j.state, j.fence, j.fingerprint, j.created_at, j.unique_until,
    j.expires_at, j.unique_states, j.id::text, clock.now
from clock cross join onefold.job as j
where
    (:surface::text is null or :surface::text = 'job')
    and (:scope::text is null or j.unique_kind = :scope::text)
    and j.shard = :shard::smallint
    and j.tenant = :tenant::text
    and j.unique_key = :key::text
    and j.unique_key is not null
    and not j.yielded
    and (j.unique_until is not null or (j.unique_states >> j.state) & 1 = 1)
union all
select
    c.surface, c.scope, c.state, c.fence, c.fingerprint, c.created_at, c.lease_until,
    c.expires_at, c.takeover, case when c.surface = 'publish' then c.result end, clock.now
from
    clock
    cross join place
    cross join lateral (
        select *
        from onefold.claim as c
        where
            c.shard = :shard::smallint
            and c.tenant = :tenant::text
            and c.surface = place.surface
            and c.scope = place.scope
            and c.key = :key::text
        limit 1
    ) as c
