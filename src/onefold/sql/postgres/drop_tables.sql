-- The statements that drop the tables and functions that migrations create, whichever version created them.
select 'drop function if exists ' || p.oid::regprocedure::text || ' cascade;'
from pg_proc as p
where
    p.pronamespace = (select m.relnamespace from pg_class as m where m.oid = to_regclass('onefold.meta'))
    and p.proname = any(:names::text[])
union all
select 'drop table if exists ' || c.oid::regclass::text || ' cascade;'
from pg_class as c
where
    c.relnamespace = (select m.relnamespace from pg_class as m where m.oid = to_regclass('onefold.meta'))
    and c.relkind in ('r', 'p')
    and c.relname = any(:names::text[])
order by 1
