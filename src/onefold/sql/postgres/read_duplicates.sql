-- The suppressed duplicates of one job: the tally, and those that are not yet in it.
select t.count, t.first_at, t.last_at, t.recent, null::text
from onefold.duplicate_tally as t
where t.shard = :shard::smallint and t.job_id = :id::text::uuid
union all
select 1, d.at, d.at, null, d.request_id
from onefold.duplicate as d
where d.shard = :shard::smallint and d.job_id = :id::text::uuid
