-- The oldest logged duplicates, to be counted in tallies.
select d.number, d.job_id, d.at, d.request_id
from onefold_duplicate as d
where d.shard = :shard
order by d.number
limit :limit
