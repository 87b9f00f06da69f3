-- The identity of the installation. Returns null, never an error, if there is none.
select obj_description(to_regclass('onefold.meta'), 'pg_class'), current_database()
