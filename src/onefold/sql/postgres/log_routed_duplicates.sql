-- Log duplicates as log_duplicates does, on Citus, which rejects a lateral limit.
insert into onefold.duplicate (shard, job_id, at, request_id)
select j.shard, j.id, coalesce(r.at, clock.now), r.request_id
from
    (select coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint))
        as clock (now),
    unnest(:job_id::text[], :at::bigint[], :request_id::text[]) as r (job_id, at, request_id)
inner join onefold.job as j on j.shard = (:shard::smallint[])[1] and j.id = r.job_id::uuid
