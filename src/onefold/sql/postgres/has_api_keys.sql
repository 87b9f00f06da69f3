-- Was a key ever made? One that is revoked counts: to revoke the last one must not open the door.
select 1
from onefold.api_key as k
where k.shard = :shard::smallint
limit 1
