-- Delete all schedules of a tenant.
delete from onefold_schedule
where shard = :shard and tenant = :tenant
returning name
