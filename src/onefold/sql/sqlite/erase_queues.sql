-- Delete the rows of a tenant's queues: those whose names begin with :prefix, and some others.
delete from onefold_queue
where
    shard = :shard
    and (
        substr(name, 1, length(:prefix)) = :prefix
        or name in (select value from json_each(:queues))
    )
returning name
