-- Delete a queue of the server.
delete from onefold.served_queue as s
where s.shard = :shard::smallint and s.tenant = :tenant::text and s.name = :served::text
returning s.name
