-- Whether an API key was ever created. A revoked key counts: after the last one is revoked, access must
-- not be open.
select 1
from onefold_api_key
where shard = :shard
limit 1
