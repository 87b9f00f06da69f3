-- The indexes of the schema, and whether queries can use them.
select c.relname, i.indisvalid
from pg_index as i
inner join pg_class as c on c.oid = i.indexrelid
where c.relnamespace = (select n.relnamespace from pg_class as n where n.oid = to_regclass('onefold.job'))
