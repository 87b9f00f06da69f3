-- Let publish keys that were claimed in this transaction return the job that holds the unique key.
update onefold_claim
set result = r.result
from (
    select
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as tenant,
        json_extract(value, '$[2]') as surface,
        json_extract(value, '$[3]') as scope,
        json_extract(value, '$[4]') as key,
        json_extract(value, '$[5]') as owner,
        json_extract(value, '$[6]') as result
    from json_each(:rows)
) as r
where
    onefold_claim.shard = r.shard
    and onefold_claim.tenant = r.tenant
    and onefold_claim.surface = r.surface
    and onefold_claim.scope = r.scope
    and onefold_claim.key = r.key
    and onefold_claim.owner = r.owner
