-- The columns of a table of the caller, and whether it has a unique constraint on exactly these columns.
select
    c.name,
    c.type,
    (
        (
            select count(*) filter (where p.name in (select value from json_each(:keys)))
                = json_array_length(:keys)
                and count(*) = json_array_length(:keys)
            from pragma_table_xinfo(:table, :schema) as p
            where p.pk > 0
        )
        or exists (
            select 1
            from pragma_index_list(:table, :schema) as l
            where
                l."unique"
                and not l.partial
                and (
                    select count(*) filter (where i.name in (select value from json_each(:keys)))
                        = json_array_length(:keys)
                        and count(*) = json_array_length(:keys)
                    from pragma_index_info(l.name, :schema) as i
                )
        )
    )
from pragma_table_xinfo(:table, :schema) as c
where c.hidden <> 1
order by c.cid
