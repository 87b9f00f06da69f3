-- Delete all queues of a tenant from the server.
delete from onefold.served_queue as s
where s.shard = :shard::smallint and s.tenant = :tenant::text
returning s.name
