-- The settings of a queue of the server. SQLite has one writer, and needs no lock.
select s.settings
from onefold_served_queue as s
where s.shard = :shard and s.tenant = :tenant and s.name = :served
