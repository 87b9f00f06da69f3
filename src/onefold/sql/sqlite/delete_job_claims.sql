-- Delete the claims of deleted jobs, with any owner.
delete from onefold_claim
where rowid in (
    select c.rowid
    from json_each(:rows) as r
    cross join onefold_claim as c
        on c.shard = json_extract(r.value, '$[0]')
        and c.tenant = json_extract(r.value, '$[1]')
        and c.surface = json_extract(r.value, '$[2]')
        and c.scope = json_extract(r.value, '$[3]')
        and c.key = json_extract(r.value, '$[4]')
)
