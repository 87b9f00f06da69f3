"""PostgreSQL by psycopg: a pool per process (and per event loop), transactions of our own."""

from onefold.databases.postgres.database import PostgresDatabase

__all__ = ["PostgresDatabase"]
