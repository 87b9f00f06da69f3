-- The settings of a queue of the server, locked for a change.
select s.settings
from onefold.served_queue as s
where s.shard = :shard::smallint and s.tenant = :tenant::text and s.name = :served::text
order by s.shard, s.tenant, s.name
for update
