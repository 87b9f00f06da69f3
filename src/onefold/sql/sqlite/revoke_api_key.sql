-- End a key, at once and for good.
update onefold_api_key
set revoked_at = :now
where shard = :shard and id = :id and revoked_at is null
returning id
