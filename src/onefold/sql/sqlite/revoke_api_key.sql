-- Revoke an API key, at once and permanently.
update onefold_api_key
set revoked_at = :now
where shard = :shard and id = :id and revoked_at is null
returning id
