-- How many jobs each queue has: due, for later, running. By the three indexes that have no ended ones.
select
    counted.queue,
    sum(counted.ready)::bigint,
    sum(counted.scheduled)::bigint,
    sum(counted.running)::bigint
from (
    select
        j.queue,
        count(*) filter (where j.run_at <= clock.now) as ready,
        count(*) filter (where j.run_at > clock.now) as scheduled,
        0 as running
    from onefold.job as j
    cross join
        coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
            as clock (now)
    where j.shard = :shard::smallint and j.state = 0 and j.group_key is null
    group by j.queue
    union all
    select
        j.queue,
        count(*) filter (where j.run_at <= clock.now),
        count(*) filter (where j.run_at > clock.now),
        0
    from onefold.job as j
    cross join
        coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
            as clock (now)
    where j.shard = :shard::smallint and j.state = 0 and j.group_key is not null
    group by j.queue
    union all
    select j.queue, 0, 0, count(*)
    from onefold.job as j
    where j.shard = :shard::smallint and j.state = 1
    group by j.queue
) as counted
group by counted.queue
