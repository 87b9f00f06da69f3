-- The oldest notes of suppressed duplicates, for folding.
select d.number, d.job_id, d.at, d.request_id
from onefold_duplicate as d
where d.shard = :shard
order by d.number
limit :limit
