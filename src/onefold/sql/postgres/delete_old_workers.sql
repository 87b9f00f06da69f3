-- Delete workers that have not been seen for :age microseconds.
delete from onefold.worker as w
where
    w.shard = :shard::smallint
    and w.id in (
        select f.id
        from onefold.worker as f
        where
            f.shard = :shard::smallint
            and f.seen_at <= coalesce(
                :now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint
            ) - :age::bigint
        for update skip locked
    )
