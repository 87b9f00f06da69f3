-- Store the newest request with a running holder. It becomes a job when the holder ends.
update onefold_job
set next = r.next
from (
    select
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as id,
        json_extract(value, '$[2]') as next
    from json_each(:rows)
) as r
where onefold_job.shard = r.shard and onefold_job.id = r.id and onefold_job.state = 1
returning id
