-- Store an API key. Storing the same key again changes nothing: the answer of the first try may have
-- been lost.
insert into onefold_api_key (
    shard, id, tenant, name, scopes, digest, rate_count, rate_period, created_at, expires_at
)
values (
    :shard, :id, :tenant, :called, :scopes, :digest, :rate_count, :rate_period, :now,
    :now + :expires_in
)
on conflict (shard, id) do update
set digest = excluded.digest
where onefold_api_key.digest = excluded.digest
returning
    id, tenant, name, scopes, rate_count, rate_period, created_at, expires_at, revoked_at
