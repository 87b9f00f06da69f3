-- Whether this file has Onefold's tables at all.
select 1 from sqlite_master where type = 'table' and name = 'onefold_meta'
