-- Whether this file has the tables of Onefold.
select 1 from sqlite_master where type = 'table' and name = 'onefold_meta'
