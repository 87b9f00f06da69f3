-- Delete the row of a worker that stops.
delete from onefold_worker where shard = :shard and id = :id
