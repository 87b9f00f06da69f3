-- Delete the statistics of a tenant's queues: those whose names begin with :prefix, and some others.
delete from onefold_statistic
where
    shard = :shard
    and (
        substr(queue, 1, length(:prefix)) = :prefix
        or queue in (select value from json_each(:queues))
    )
returning minute
