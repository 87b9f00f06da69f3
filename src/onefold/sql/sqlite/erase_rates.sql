-- Delete the rates of a tenant's queues, as of erase_queues, and those of some groups in other queues.
delete from onefold_rate
where
    shard = :shard
    and (
        substr(queue, 1, length(:prefix)) = :prefix
        or queue in (select value from json_each(:queues))
        or (queue, group_key) in (
            select json_extract(value, '$[0]') as queue, json_extract(value, '$[1]') as group_key
            from json_each(:rows)
        )
    )
returning group_key
