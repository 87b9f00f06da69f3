-- Is this holder still the holder? The update changes nothing but takes SQLite's write lock, so that
-- nobody can take the key over between this answer and the caller's commit.
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
