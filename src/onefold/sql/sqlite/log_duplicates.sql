-- Log suppressed duplicates.
insert into onefold_duplicate (shard, job_id, at, request_id)
select r.shard, r.job_id, :now, r.request_id
from (
    select
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as job_id,
        json_extract(value, '$[2]') as request_id
    from json_each(:rows)
) as r
