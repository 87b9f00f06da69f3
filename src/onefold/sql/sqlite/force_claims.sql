-- For an operator: free (or settle) a key in any state, and invalidate the fence of its holder. An
-- expired key counts as absent, also before a sweep, except a publish key whose job has not ended.
update onefold_claim
set
    state = r.state,
    fence = max(onefold_claim.fence + 1, :clock),
    lease_until = null,
    fingerprint = case when r.state = 1 then onefold_claim.fingerprint end,
    settled_at = case when r.state = 1 then :now end,
    expires_at = case when r.state = 1 then :now + onefold_claim.keep else :now + 86400000000 end,
    result = r.result
from (
    select
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as tenant,
        json_extract(value, '$[2]') as surface,
        json_extract(value, '$[3]') as scope,
        json_extract(value, '$[4]') as key,
        json_extract(value, '$[5]') as state,
        json_extract(value, '$[6]') as result,
        json_extract(value, '$[7]') as seen_fence
    from json_each(:rows)
) as r
where
    onefold_claim.shard = r.shard
    and onefold_claim.tenant = r.tenant
    and onefold_claim.surface = r.surface
    and onefold_claim.scope = r.scope
    and onefold_claim.key = r.key
    and onefold_claim.state <> 2
    and (
        onefold_claim.state = 0
        or onefold_claim.expires_at is null
        or onefold_claim.expires_at > :now
        or onefold_claim.surface = 'publish'
    )
    and (r.seen_fence is null or (onefold_claim.fence = r.seen_fence and onefold_claim.state = 0))
returning fence
