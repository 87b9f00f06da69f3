-- Delete full buckets: a missing bucket is full.
delete from onefold_rate
where
    rowid in (
        select f.rowid from onefold_rate as f where f.shard = :shard and f.full_at <= :now limit :limit
    )
returning group_key
