-- Delete all schedules of a tenant.
delete from onefold.schedule as s
where s.shard = :shard::smallint and s.tenant = :tenant::text
returning s.name
