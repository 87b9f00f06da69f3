-- Delete jobs, and with them the keys that they hold. By rowid: SQLite uses no index to find pairs in a
-- list.
delete from onefold_job
where rowid in (
    select t.rowid
    from json_each(:rows) as r
    cross join onefold_job as t
        on t.shard = json_extract(r.value, '$[0]') and t.id = json_extract(r.value, '$[1]')
)
returning id, tenant
