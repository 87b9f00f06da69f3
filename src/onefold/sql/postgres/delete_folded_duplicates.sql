-- Remove the notes that have been folded.
delete from onefold.duplicate as d
using unnest(:shard::smallint[], :number::bigint[]) as r (shard, number)
where d.shard = r.shard and d.number = r.number
