-- Delete the settings of a queue.
delete from onefold.queue as q
where q.shard = :shard::smallint and q.name = :queue::text
