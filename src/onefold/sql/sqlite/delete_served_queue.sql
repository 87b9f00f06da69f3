-- Delete a queue of the server.
delete from onefold_served_queue
where shard = :shard and tenant = :tenant and name = :served
returning name
