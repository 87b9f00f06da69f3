-- The claims of some keys. A key without a claim returns nulls.
select
    r.place, c.id, c.owner, c.state, c.fence, c.fingerprint, c.takeover, c.lease_until,
    c.expires_at, c.result, :now
from (
    select
        key as place,
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as tenant,
        json_extract(value, '$[2]') as surface,
        json_extract(value, '$[3]') as scope,
        json_extract(value, '$[4]') as key
    from json_each(:rows)
) as r
left join onefold_claim as c
    on c.shard = r.shard
    and c.tenant = r.tenant
    and c.surface = r.surface
    and c.scope = r.scope
    and c.key = r.key
order by r.place
