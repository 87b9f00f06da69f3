-- Remove jobs, and with them the keys they hold.
delete from onefold_job
where (shard, id) in (
    select json_extract(value, '$[0]'), json_extract(value, '$[1]') from json_each(:rows)
)
returning id
