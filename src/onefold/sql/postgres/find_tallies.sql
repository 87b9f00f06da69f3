-- The tallies of the duplicates of some jobs, locked for the next fold.
select t.job_id::text, t.count, t.first_at, t.last_at, t.recent
from onefold.duplicate_tally as t
where t.shard = (:shard::smallint[])[1] and t.job_id = any((:id::text[])::uuid[])
order by t.shard, t.job_id
for update of t
