-- Whether this schema has the tables of Onefold, and the name of the database. Never an error: an error would
-- abort the transaction of a caller.
select to_regclass('onefold.meta') is not null, current_database()
