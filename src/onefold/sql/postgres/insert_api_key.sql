-- Store an API key. Storing the same key again changes nothing: the answer of the first try may have
-- been lost.
insert into onefold.api_key (
    shard, id, tenant, name, scopes, digest, rate_count, rate_period, created_at, expires_at
)
values (
    :shard::smallint, :id::text, :tenant::text, :called::text, :scopes::text, :digest::text,
    :rate_count::integer, :rate_period::bigint,
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint),
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
        + :expires_in::bigint
)
on conflict (shard, id) do update
set digest = excluded.digest
where api_key.digest = excluded.digest
returning
    id, tenant, name, scopes, rate_count, rate_period, created_at, expires_at, revoked_at
