-- Delete a schedule. Its jobs stay.
delete from onefold.schedule as s
where s.shard = :shard::smallint and s.tenant = :tenant::text and s.name = :schedule::text
returning s.name
