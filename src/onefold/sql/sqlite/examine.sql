-- What the file tells about itself: names and values. The check of the file reads all of it.
select 'server_version', sqlite_version()
union all
select 'journal_mode', p.journal_mode
from pragma_journal_mode as p
union all
select 'synchronous', p.synchronous
from pragma_synchronous as p
union all
select 'damage', p.quick_check
from pragma_quick_check(1) as p
where p.quick_check <> 'ok'
