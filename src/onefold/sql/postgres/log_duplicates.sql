-- Log duplicates that were suppressed by jobs, with the time of the answer. It only inserts, and waits
-- for no other row. A job that is deleted meanwhile gets none: nothing would delete them.
insert into onefold.duplicate (shard, job_id, at, request_id)
select (:shard::smallint[])[1], job.id, coalesce(r.at, clock.now), r.request_id
from
    (select coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint))
        as clock (now),
    unnest(:job_id::text[], :at::bigint[], :request_id::text[]) as r (job_id, at, request_id)
cross join lateral (
    select j.id
    from onefold.job as j
    where j.shard = (:shard::smallint[])[1] and j.id = r.job_id::uuid
    limit 1
) as job
