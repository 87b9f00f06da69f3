-- Delete a schedule. Its jobs stay.
delete from onefold_schedule
where shard = :shard and tenant = :tenant and name = :schedule
returning name
