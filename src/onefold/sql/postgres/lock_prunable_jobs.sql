-- Ended jobs whose retention is over, and whether the window of their key is not. Uses job_keep.
select j.id::text, not j.yielded and j.unique_until is not null and j.unique_until > clock.now
from
    (select coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint))
        as clock (now),
    onefold.job as j
where j.shard = :shard::smallint and j.keep_until <= clock.now
order by j.keep_until
limit :limit::integer
for update of j skip locked
