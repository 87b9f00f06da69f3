"""Operations: generators that yield statements and receive rows. Internal.

1. An operation never begins, commits or rolls back: who owns the connection owns the transaction.
2. It never depends on catching a database error; in PostgreSQL the error has already killed the
   caller's transaction. It looks at the rows.
3. The plural is the operation: one statement per batch, a single call is a list of one.
4. It does not sleep, spawn, listen or read a clock.
5. Locks are taken in one order everywhere: claims, then unique keys (sorted), then rows by
   (shard, id).
"""
