-- The indexes of the file; those of SQLite can always be used.
select m.name, 1
from sqlite_master as m
where m.type = 'index'
