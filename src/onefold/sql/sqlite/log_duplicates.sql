-- Log duplicates that were suppressed by jobs, with the time of the answer. A job that is deleted
-- meanwhile gets none: nothing would delete them.
insert into onefold_duplicate (shard, job_id, at, request_id)
select r.shard, r.job_id, coalesce(r.at, :now), r.request_id
from (
    select
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as job_id,
        json_extract(value, '$[2]') as at,
        json_extract(value, '$[3]') as request_id
    from json_each(:rows)
) as r
cross join onefold_job as j on j.shard = r.shard and j.id = r.job_id
