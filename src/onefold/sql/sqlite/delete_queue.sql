-- Forget all that was said about a queue.
delete from onefold_queue
where shard = :shard and name = :queue
