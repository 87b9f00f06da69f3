-- Delete old deliveries of jobs that have very many: all up to the given fence of each job.
delete from onefold.attempt as a
using unnest(:id::text[], :fence::bigint[]) as r (id, fence)
where
    a.shard = (:shard::smallint[])[1]
    and a.job_id = r.id::uuid
    and a.fence <= r.fence
