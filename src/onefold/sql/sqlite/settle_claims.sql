-- Store the result of claims whose fence is still valid.
update onefold_claim
set
    state = 1,
    lease_until = null,
    settled_at = :now,
    expires_at = :now + onefold_claim.keep,
    result = r.result
from (
    select
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as tenant,
        json_extract(value, '$[2]') as surface,
        json_extract(value, '$[3]') as scope,
        json_extract(value, '$[4]') as key,
        json_extract(value, '$[5]') as owner,
        json_extract(value, '$[6]') as fence,
        json_extract(value, '$[7]') as result
    from json_each(:rows)
) as r
where
    onefold_claim.shard = r.shard
    and onefold_claim.tenant = r.tenant
    and onefold_claim.surface = r.surface
    and onefold_claim.scope = r.scope
    and onefold_claim.key = r.key
    and onefold_claim.state = 0
    and onefold_claim.fence = r.fence
    and onefold_claim.owner = r.owner
returning owner
