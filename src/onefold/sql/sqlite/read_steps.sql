-- The steps of a job, or one of them, in the order in which they began, after a place. Uses the primary
-- key. Without a limit, all of them.
select
    c.key, c.owner, c.state, c.fence, c.fingerprint, c.takeover, c.created_at, c.settled_at, c.result
from onefold_claim as c
where
    c.shard = :shard
    and c.tenant = :tenant
    and c.surface = 'step'
    and c.scope = :job
    and (:key is null or c.key = :key)
    and (:after_at is null or (c.created_at, c.key) > (:after_at, :after_key))
order by c.created_at, c.key
limit coalesce(:limit, -1)
