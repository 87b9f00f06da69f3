-- The oldest notes of suppressed duplicates, for folding. Two folders start at the same row, so the
-- second waits for the first and then sees its tallies.
select d.number, d.job_id::text, d.at, d.request_id
from onefold.duplicate as d
where d.shard = :shard::smallint
order by d.number
limit :limit::integer
for update
