-- The oldest logged duplicates, to be counted in tallies. Two workers start at the same row, so the
-- second waits for the first, and then reads its tallies.
select d.number, d.job_id::text, d.at, d.request_id
from onefold.duplicate as d
where d.shard = :shard::smallint
order by d.number
limit :limit::integer
for update
