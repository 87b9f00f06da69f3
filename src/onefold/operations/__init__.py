"""Operations: generators that yield statements and receive rows. Internal.

1. An operation never begins, commits or rolls back: the owner of the connection does.
2. It never catches a database error: on PostgreSQL the error has aborted the transaction. It looks
   at the rows.
3. The plural is the operation: one statement per batch. A single call is a list of one.
4. It does not sleep, start threads, listen or read a clock.
5. Locks are taken in one order everywhere: claims, then unique keys (sorted), then rows by
   (shard, id).
"""
