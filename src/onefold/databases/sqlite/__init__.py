"""The embedded database: one SQLite file."""
