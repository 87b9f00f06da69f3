-- Whether this schema has the tables of Onefold, the name of the database, and whether it has Citus.
-- Never an error: an error would abort the transaction of a caller.
select to_regclass('onefold.meta') is not null, current_database(),
    exists (select 1 from pg_extension where extname = 'citus')
