-- Delete statistics that are older than :age microseconds.
delete from onefold.statistic as s
where
    s.shard = :shard::smallint
    and (s.minute, s.queue) in (
        select f.minute, f.queue
        from onefold.statistic as f
        where
            f.shard = :shard::smallint
            and f.minute <= coalesce(
                :now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint
            ) - :age::bigint
        order by f.minute, f.queue
        limit :limit::integer
        for update skip locked
    )
returning s.minute
