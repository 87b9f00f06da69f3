-- Delete the row of a worker that stops.
delete from onefold.worker where shard = :shard::smallint and id = :id::uuid
