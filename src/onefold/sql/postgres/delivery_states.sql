-- How the jobs of some deliveries stand now, tombstones included. Locks nothing.
select j.id::text, j.state, j.fence, j.lease_until
from onefold.job as j
where j.shard = (:shard::smallint[])[1] and j.id = any((:id::text[])::uuid[])
