-- Some running jobs of a queue, or of one of its groups, that a tenant may see (job_running). One of the
-- two parts is empty: a plan for all values could not use the group in a condition with `or`.
(
    select j.id::text
    from onefold.job as j
    where
        :group_key::text is null
        and j.shard = :shard::smallint
        and j.queue = :queue::text
        and j.state = 1
        and j.tenant = :tenant::text
    limit :limit::integer
)
union all
(
    select j.id::text
    from onefold.job as j
    where
        j.group_key = :group_key::text
        and j.shard = :shard::smallint
        and j.queue = :queue::text
        and j.state = 1
        and j.tenant = :tenant::text
    limit :limit::integer
)
