-- Note requests that claims have kept away, as of when they were answered. Append-only, as
-- log_duplicates is.
insert into onefold.duplicate (shard, job_id, at, request_id)
select r.shard, r.job_id::uuid, r.at, r.request_id
from unnest(:shard::smallint[], :job_id::text[], :at::bigint[], :request_id::text[])
    as r (shard, job_id, at, request_id)
