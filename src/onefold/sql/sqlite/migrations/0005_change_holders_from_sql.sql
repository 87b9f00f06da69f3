-- Enqueue from SQL is for PostgreSQL: a SQLite file has no functions. Nothing changes here, so that both
-- databases stay at the same schema.

select 1;
