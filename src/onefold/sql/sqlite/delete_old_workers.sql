-- Delete workers that have not been seen for :age microseconds.
delete from onefold_worker where shard = :shard and seen_at <= :now - :age
