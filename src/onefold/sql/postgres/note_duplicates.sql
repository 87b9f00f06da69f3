-- Log requests that were suppressed by a claim, with the time of the answer. It only inserts, as
-- log_duplicates does.
insert into onefold.duplicate (shard, job_id, at, request_id)
select r.shard, r.job_id::uuid, r.at, r.request_id
from unnest(:shard::smallint[], :job_id::text[], :at::bigint[], :request_id::text[])
    as r (shard, job_id, at, request_id)
