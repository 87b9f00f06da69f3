-- Delete statistics that are older than :age microseconds.
delete from onefold_statistic
where
    rowid in (
        select f.rowid
        from onefold_statistic as f
        where f.shard = :shard and f.minute <= :now - :age
        order by f.minute
        limit :limit
    )
returning minute
