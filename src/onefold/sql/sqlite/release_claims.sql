-- Release keys without a result. The row stays for a day, so that its fence never decreases. A lock can
-- be released only before the end of its lease (:strict).
update onefold_claim
set
    state = 2,
    lease_until = null,
    fingerprint = null,
    expires_at = :now + 86400000000
from (
    select
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as tenant,
        json_extract(value, '$[2]') as surface,
        json_extract(value, '$[3]') as scope,
        json_extract(value, '$[4]') as key,
        json_extract(value, '$[5]') as owner,
        json_extract(value, '$[6]') as fence
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
    and (not :strict or onefold_claim.lease_until is null or onefold_claim.lease_until > :now)
returning owner
