-- Log suppressed duplicates. It only inserts, and waits for no other row.
insert into onefold.duplicate (shard, job_id, at, request_id)
select
    r.shard, r.job_id::uuid,
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint),
    r.request_id
from unnest(:shard::smallint[], :job_id::text[], :request_id::text[]) as r (shard, job_id, request_id)
