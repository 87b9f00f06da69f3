-- Whether an API key was ever created. A revoked key counts: after the last one is revoked, access must
-- not be open.
select 1
from onefold.api_key as k
where k.shard = :shard::smallint
limit 1
