-- Enqueue from SQL is for PostgreSQL: a SQLite file has no functions.

-- How often a job was deferred since it was enqueued or replayed.
alter table onefold_job add column defers integer not null default 0;
