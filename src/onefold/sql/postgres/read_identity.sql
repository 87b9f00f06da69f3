-- Which installation is this, at which schema? Answers null, never an error, where there is none.
select obj_description(to_regclass('onefold.meta'), 'pg_class'), current_database()
