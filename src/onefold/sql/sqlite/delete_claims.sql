-- Forget claims that still have the owner they were seen with.
delete from onefold_claim
where (shard, tenant, surface, scope, key, owner) in (
    select
        json_extract(value, '$[0]'),
        json_extract(value, '$[1]'),
        json_extract(value, '$[2]'),
        json_extract(value, '$[3]'),
        json_extract(value, '$[4]'),
        json_extract(value, '$[5]')
    from json_each(:rows)
)
returning owner
