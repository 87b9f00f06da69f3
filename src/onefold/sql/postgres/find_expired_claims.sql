-- Settled and free claims that have expired, oldest first, from the cursor. Uses claim_expiry.
select
    c.shard, c.tenant, c.surface, c.scope, c.key, c.owner::text, c.result, c.expires_at
from onefold.claim as c
where
    c.shard = :shard::smallint
    and c.expires_at <= coalesce(
        :now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint
    )
    and c.expires_at >= :start::bigint
    and c.state <> 0
order by c.expires_at
limit :limit::integer
