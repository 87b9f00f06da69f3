-- The identity of the installation. Only for files that have onefold_meta.
select value from onefold_meta where name = 'identity'
