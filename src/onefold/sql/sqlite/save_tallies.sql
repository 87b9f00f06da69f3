-- Store tallies of duplicates.
insert into onefold_duplicate_tally (shard, job_id, count, first_at, last_at, recent)
select r.shard, r.job_id, r.count, r.first_at, r.last_at, r.recent
from (
    select
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as job_id,
        json_extract(value, '$[2]') as count,
        json_extract(value, '$[3]') as first_at,
        json_extract(value, '$[4]') as last_at,
        json_extract(value, '$[5]') as recent
    from json_each(:rows)
) as r
where true
on conflict (shard, job_id) do update
set count = excluded.count,
    first_at = excluded.first_at,
    last_at = excluded.last_at,
    recent = excluded.recent
