-- Delete the statistics of a tenant's queues: those whose names begin with :prefix, and some others.
delete from onefold.statistic as s
where
    s.shard = :shard::smallint
    and (starts_with(s.queue, :prefix::text) or s.queue = any(:queues::text[]))
returning s.minute
