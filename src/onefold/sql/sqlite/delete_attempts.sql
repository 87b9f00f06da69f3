-- Delete the history of deleted jobs. Uses the primary key.
delete from onefold_attempt
where rowid in (
    select t.rowid
    from json_each(:rows) as r
    cross join onefold_attempt as t
        on t.shard = json_extract(r.value, '$[0]') and t.job_id = json_extract(r.value, '$[1]')
)
