-- Whether this holder still holds the key. The update changes nothing, but it takes SQLite's write lock,
-- so that no other attempt can take the key over before the caller's commit.
update onefold_claim
set fence = fence
where
    shard = :shard
    and tenant = :tenant
    and surface = :surface
    and scope = :scope
    and key = :key
    and state = 0
    and fence = :fence
    and owner = :owner
returning fence
