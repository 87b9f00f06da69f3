-- Add counts to the statistics of their minutes and queues. Without a minute, to those of now.
insert into onefold.statistic (
    shard, minute, queue, completed, retried, deferred, dead, duplicates, measured, waited_total,
    waited_longest, ran_total, ran_longest, backlog
)
select
    r.shard, coalesce(r.minute, clock.now - clock.now % 60000000), r.queue, r.completed, r.retried,
    r.deferred, r.dead, r.duplicates, r.measured, r.waited_total, r.waited_longest, r.ran_total,
    r.ran_longest, r.backlog
from
    unnest(
        :shard::smallint[], :minute::bigint[], :queue::text[], :completed::bigint[],
        :retried::bigint[], :deferred::bigint[], :dead::bigint[], :duplicates::bigint[],
        :measured::bigint[], :waited_total::bigint[], :waited_longest::bigint[],
        :ran_total::bigint[], :ran_longest::bigint[], :backlog::bigint[]
    ) with ordinality as r (
        shard, minute, queue, completed, retried, deferred, dead, duplicates, measured,
        waited_total, waited_longest, ran_total, ran_longest, backlog, place
    ),
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
        as clock (now)
order by r.place
on conflict (shard, minute, queue) do update
set completed = statistic.completed + excluded.completed,
    retried = statistic.retried + excluded.retried,
    deferred = statistic.deferred + excluded.deferred,
    dead = statistic.dead + excluded.dead,
    duplicates = statistic.duplicates + excluded.duplicates,
    measured = statistic.measured + excluded.measured,
    waited_total = statistic.waited_total + excluded.waited_total,
    waited_longest = greatest(statistic.waited_longest, excluded.waited_longest),
    ran_total = statistic.ran_total + excluded.ran_total,
    ran_longest = greatest(statistic.ran_longest, excluded.ran_longest),
    backlog = greatest(statistic.backlog, excluded.backlog)
