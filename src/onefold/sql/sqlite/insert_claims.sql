-- Claim keys. A key that exists already is not returned. The fence starts at the clock, so that it still
-- grows if a row was swept and its key is claimed again. SQLite has one writer, and needs no advisory
-- lock.
insert into onefold_claim (
    shard, tenant, surface, scope, key, id, owner, state, takeover, fence, created_at, lease_until,
    settled_at, expires_at, keep, fingerprint, result
)
select
    r.shard, r.tenant, r.surface, r.scope, r.key, r.id, r.id, r.state, r.takeover, :clock, :now,
    :now + r.lease, case when r.state = 1 then :now end, case when r.state = 1 then :now + r.keep end,
    r.keep, r.fingerprint, r.result
from (
    select
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as tenant,
        json_extract(value, '$[2]') as surface,
        json_extract(value, '$[3]') as scope,
        json_extract(value, '$[4]') as key,
        json_extract(value, '$[5]') as id,
        json_extract(value, '$[6]') as state,
        json_extract(value, '$[7]') as takeover,
        json_extract(value, '$[8]') as lease,
        json_extract(value, '$[9]') as keep,
        json_extract(value, '$[10]') as fingerprint,
        json_extract(value, '$[11]') as result,
        json_extract(value, '$[12]') as lock
    from json_each(:rows)
) as r
where true
on conflict do nothing
returning owner, fence, lease_until
