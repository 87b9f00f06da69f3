-- The statements that empty every table of Onefold, except the identity and the applied migrations.
select 'delete from ' || c.oid::regclass::text || ';'
from pg_class as c
where
    c.relnamespace = (select m.relnamespace from pg_class as m where m.oid = to_regclass('onefold.meta'))
    and c.relkind in ('r', 'p')
    and c.relname not in ('meta', 'migration')
order by c.relname
