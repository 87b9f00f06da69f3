-- What the server tells about itself, its transactions and the table of jobs: names and values.
select s.name, s.setting
from pg_settings as s
where
    s.name in (
        'server_version', 'deadlock_timeout', 'synchronous_commit', 'fsync', 'full_page_writes',
        'autovacuum', 'max_connections'
    )
union all
select 'time', (extract(epoch from statement_timestamp()) * 1000000)::bigint::text
union all
select 'standby', pg_is_in_recovery()::text
union all
select 'connections', count(*)::text
from pg_stat_activity as a
where a.backend_type = 'client backend'
union all
(
    select 'transaction', extract(epoch from statement_timestamp() - a.xact_start)::bigint || ' ' || a.pid
    from pg_stat_activity as a
    where a.xact_start is not null and a.backend_type = 'client backend'
    order by a.xact_start
    limit 1
)
union all
select 'unvacuumed', c.relname
from pg_class as c
where c.oid = to_regclass('onefold.job') and c.reloptions::text ~ 'autovacuum_enabled=(false|off)'
union all
select 'dead rows', t.n_dead_tup || ' ' || t.n_live_tup
from pg_stat_user_tables as t
where t.relid = to_regclass('onefold.job')
