-- The suppressed duplicates of one job: the tally, and those that are not yet in it.
select t.count, t.first_at, t.last_at, t.recent, null
from onefold_duplicate_tally as t
where t.shard = :shard and t.job_id = :id
union all
select 1, d.at, d.at, null, d.request_id
from onefold_duplicate as d
where d.shard = :shard and d.job_id = :id
