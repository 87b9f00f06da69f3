-- The statements that empty every table of Onefold, except the identity and the applied migrations.
select 'delete from ' || name || ';'
from sqlite_master
where
    type = 'table'
    and name glob 'onefold_*'
    and name not in ('onefold_meta', 'onefold_migration')
order by name
