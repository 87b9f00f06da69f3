-- The tallies of the duplicates of some jobs.
select t.job_id, t.count, t.first_at, t.last_at, t.recent
from (
    select
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as id
    from json_each(:rows)
) as r
cross join onefold_duplicate_tally as t on t.shard = r.shard and t.job_id = r.id
