-- Delete full buckets: a missing bucket is full.
delete from onefold.rate as r
where
    r.shard = :shard::smallint
    and (r.queue, r.group_key) in (
        select f.queue, f.group_key
        from onefold.rate as f
        where
            f.shard = :shard::smallint
            and f.full_at <= coalesce(
                :now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint
            )
        order by f.queue, f.group_key
        limit :limit::integer
        for update skip locked
    )
returning r.group_key
