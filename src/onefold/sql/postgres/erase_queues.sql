-- Delete the rows of a tenant's queues: those whose names begin with :prefix, and some others.
delete from onefold.queue as q
where
    q.shard = :shard::smallint
    and (starts_with(q.name, :prefix::text) or q.name = any(:queues::text[]))
returning q.name
