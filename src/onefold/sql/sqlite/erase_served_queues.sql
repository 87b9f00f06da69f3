-- Delete all queues of a tenant from the server.
delete from onefold_served_queue
where shard = :shard and tenant = :tenant
returning name
