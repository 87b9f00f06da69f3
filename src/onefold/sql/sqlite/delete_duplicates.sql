-- Delete the duplicates that were logged for deleted jobs. Uses onefold_duplicate_job.
delete from onefold_duplicate
where rowid in (
    select t.rowid
    from json_each(:rows) as r
    cross join onefold_duplicate as t
        on t.shard = json_extract(r.value, '$[0]') and t.job_id = json_extract(r.value, '$[1]')
)
