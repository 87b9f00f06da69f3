-- Forget deliveries of jobs that have had very many: all up to the fence that is given with a job.
delete from onefold.attempt as a
using unnest(:id::text[], :fence::bigint[]) as r (id, fence)
where
    a.shard = (:shard::smallint[])[1]
    and a.job_id = r.id::uuid
    and a.fence <= r.fence
