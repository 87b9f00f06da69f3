-- Change the settings of a queue of the server. A changed queue is never as old as a new one.
update onefold.served_queue as s
set
    settings = :settings::text,
    updated_at = greatest(clock.now, s.created_at + 1)
from
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
        as clock (now)
where s.shard = :shard::smallint and s.tenant = :tenant::text and s.name = :served::text
