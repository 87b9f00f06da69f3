-- The running jobs of one shard that these takes have leased.
select j.id, j.fence
from onefold_job as j
where
    j.shard = :shard
    and j.state = 1
    and j.take_id in (select value from json_each(:takes))
