-- Delete workers that have not been seen for :age microseconds.
delete from onefold.worker
where
    shard = :shard::smallint
    and seen_at <= coalesce(
        :now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint
    ) - :age::bigint
