-- Enqueue from SQL is for PostgreSQL: a SQLite file has no functions.

-- How often a job was deferred since it was enqueued or replayed.
alter table onefold_job add column defers integer not null default 0;

-- The take that leased it. An id of the client's: what a take leased whose answer was lost is found by it.
alter table onefold_job add column take_id text;
