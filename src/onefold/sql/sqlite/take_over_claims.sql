-- Take over claims that are free, expired or abandoned, if they have not changed since they were read.
update onefold_claim
set
    id = r.id,
    owner = r.owner,
    state = r.state,
    takeover = r.takeover,
    fence = max(onefold_claim.fence + 1, :clock),
    created_at = :now,
    lease_until = :now + r.lease,
    settled_at = case when r.state = 1 then :now end,
    expires_at = case when r.state = 1 then :now + r.keep end,
    keep = r.keep,
    fingerprint = r.fingerprint,
    result = r.result
from (
    select
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as tenant,
        json_extract(value, '$[2]') as surface,
        json_extract(value, '$[3]') as scope,
        json_extract(value, '$[4]') as key,
        json_extract(value, '$[5]') as id,
        json_extract(value, '$[6]') as owner,
        json_extract(value, '$[7]') as state,
        json_extract(value, '$[8]') as takeover,
        json_extract(value, '$[9]') as lease,
        json_extract(value, '$[10]') as keep,
        json_extract(value, '$[11]') as fingerprint,
        json_extract(value, '$[12]') as result,
        json_extract(value, '$[13]') as seen_fence,
        json_extract(value, '$[14]') as seen_state,
        json_extract(value, '$[15]') as seen_owner
    from json_each(:rows)
) as r
where
    onefold_claim.shard = r.shard
    and onefold_claim.tenant = r.tenant
    and onefold_claim.surface = r.surface
    and onefold_claim.scope = r.scope
    and onefold_claim.key = r.key
    and onefold_claim.fence = r.seen_fence
    and onefold_claim.state = r.seen_state
    and onefold_claim.owner = r.seen_owner
returning owner, fence, lease_until
