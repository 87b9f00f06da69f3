-- The steps of a job, or one of them, in the order in which they began, after a place. Uses the primary
-- key. Without a limit, all of them.
select
    c.key, c.owner::text, c.state, c.fence, c.fingerprint, c.takeover, c.created_at, c.settled_at,
    c.result
from onefold.claim as c
where
    c.shard = :shard::smallint
    and c.tenant = :tenant::text
    and c.surface = 'step'
    and c.scope = :job::text
    and (:key::text is null or c.key = :key::text)
    and (
        :after_at::bigint is null
        or (c.created_at, c.key) > (:after_at::bigint, :after_key::text)
    )
order by c.created_at, c.key
limit :limit::integer
