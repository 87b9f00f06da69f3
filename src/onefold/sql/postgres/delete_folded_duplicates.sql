-- Delete the logged duplicates that are in a tally now.
delete from onefold.duplicate as d
where d.shard = (:shard::smallint[])[1] and d.number = any(:number::bigint[])
