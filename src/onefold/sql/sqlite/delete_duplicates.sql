-- Remove the notes of the duplicates of jobs that are gone.
delete from onefold_duplicate
where (shard, job_id) in (
    select json_extract(value, '$[0]'), json_extract(value, '$[1]') from json_each(:rows)
)
