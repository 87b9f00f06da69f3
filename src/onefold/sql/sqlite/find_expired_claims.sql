-- Settled and free claims that have expired, oldest first, from the cursor. Uses onefold_claim_expiry.
select c.shard, c.tenant, c.surface, c.scope, c.key, c.owner, c.result, c.expires_at
from onefold_claim as c
where
    c.shard = :shard
    and c.expires_at <= :now
    and c.expires_at >= :start
    and c.state <> 0
order by c.expires_at
limit :limit
