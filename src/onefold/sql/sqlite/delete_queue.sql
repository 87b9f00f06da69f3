-- Delete the settings of a queue.
delete from onefold_queue
where shard = :shard and name = :queue
