-- The statements that drop the tables that migrations create, whichever version created them.
select 'drop table ' || name || ';'
from sqlite_master
where type = 'table' and name in (select 'onefold_' || value from json_each(:names))
order by name
