-- Remove the notes that have been folded.
delete from onefold.duplicate as d
where d.shard = (:shard::smallint[])[1] and d.number = any(:number::bigint[])
