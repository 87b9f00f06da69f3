-- Log requests that were suppressed by a claim, with the time of the answer.
insert into onefold_duplicate (shard, job_id, at, request_id)
select r.shard, r.job_id, r.at, r.request_id
from (
    select
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as job_id,
        json_extract(value, '$[2]') as at,
        json_extract(value, '$[3]') as request_id
    from json_each(:rows)
) as r
