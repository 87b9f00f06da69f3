-- Clear the successors of these jobs, which are stored as jobs now.
update onefold_job
set next = null
from (
    select
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as id
    from json_each(:rows)
) as r
where onefold_job.shard = r.shard and onefold_job.id = r.id
