-- Take the key from holders whose window is over. The successor of such a holder is older than the new
-- request, and is dropped.
update onefold_job
set yielded = 1, next = null
from (
    select
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as id
    from json_each(:rows)
) as r
where
    onefold_job.shard = r.shard and onefold_job.id = r.id
    and not onefold_job.yielded
    and onefold_job.unique_until <= :at
    and (onefold_job.unique_states >> onefold_job.state) & 1 = 0
returning id
