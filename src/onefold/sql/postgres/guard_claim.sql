-- Is this holder still the holder? The row is locked until the caller's transaction ends, so that nobody
-- can take the key over between this answer and the caller's commit.
select c.fence
from onefold.claim as c
where
    c.shard = :shard::smallint
    and c.tenant = :tenant::text
    and c.surface = :surface::text
    and c.scope = :scope::text
    and c.key = :key::text
    and c.state = 0
    and c.fence = :fence::bigint
    and c.owner = :owner::text::uuid
for update
