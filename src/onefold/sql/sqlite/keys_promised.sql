-- Which of these jobs hold a key whose window is not over. Uses the primary key.
select j.id
from (
    select
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as id
    from json_each(:rows)
) as r
cross join onefold_job as j on j.shard = r.shard and j.id = r.id
where not j.yielded and j.unique_until > :now
