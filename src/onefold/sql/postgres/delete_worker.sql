-- Delete the row of a worker that stops.
delete from onefold.worker as w where w.shard = :shard::smallint and w.id = :id::uuid
