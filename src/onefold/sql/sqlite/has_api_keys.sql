-- Was a key ever made? One that is revoked counts: to revoke the last one must not open the door.
select 1
from onefold_api_key
where shard = :shard
limit 1
