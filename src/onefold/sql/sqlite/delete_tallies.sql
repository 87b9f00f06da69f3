-- Delete the tallies of the duplicates of deleted jobs. Uses the primary key.
delete from onefold_duplicate_tally
where rowid in (
    select t.rowid
    from json_each(:rows) as r
    cross join onefold_duplicate_tally as t
        on t.shard = json_extract(r.value, '$[0]') and t.job_id = json_extract(r.value, '$[1]')
)
