-- Whether this holder still holds the key. The row stays locked until the end of the caller's
-- transaction, so that no other attempt can take the key over before the caller's commit.
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
