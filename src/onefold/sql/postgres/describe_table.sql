-- The columns of a table of the caller, and whether it has a unique constraint on exactly these columns.
select
    a.attname::text,
    format_type(a.atttypid, a.atttypmod),
    exists (
        select
        from pg_index as i
        where
            i.indrelid = a.attrelid
            and i.indisunique
            and i.indimmediate
            and i.indisvalid
            and i.indpred is null
            and i.indexprs is null
            and i.indnkeyatts = cardinality(:keys::text[])
            and not exists (
                select
                from pg_attribute as k
                where
                    k.attrelid = i.indrelid
                    and array_position(i.indkey::smallint[], k.attnum) < i.indnkeyatts
                    and k.attname::text <> all(:keys::text[])
            )
    )
from pg_attribute as a
where
    a.attrelid = to_regclass(
        coalesce(quote_ident(:schema::text) || '.', '') || quote_ident(:table::text)
    )
    and a.attnum > 0
    and not a.attisdropped
order by a.attnum
