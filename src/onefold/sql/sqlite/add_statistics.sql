-- Add counts to the statistics of their minutes and queues. Without a minute, to those of now.
insert into onefold_statistic (
    shard, minute, queue, completed, retried, deferred, dead, duplicates, measured, waited_total,
    waited_longest, ran_total, ran_longest, backlog
)
select
    r.shard, coalesce(r.minute, :now - :now % 60000000), r.queue, r.completed, r.retried, r.deferred,
    r.dead, r.duplicates, r.measured, r.waited_total, r.waited_longest, r.ran_total, r.ran_longest,
    r.backlog
from (
    select
        json_extract(value, '$[0]') as shard,
        json_extract(value, '$[1]') as minute,
        json_extract(value, '$[2]') as queue,
        json_extract(value, '$[3]') as completed,
        json_extract(value, '$[4]') as retried,
        json_extract(value, '$[5]') as deferred,
        json_extract(value, '$[6]') as dead,
        json_extract(value, '$[7]') as duplicates,
        json_extract(value, '$[8]') as measured,
        json_extract(value, '$[9]') as waited_total,
        json_extract(value, '$[10]') as waited_longest,
        json_extract(value, '$[11]') as ran_total,
        json_extract(value, '$[12]') as ran_longest,
        json_extract(value, '$[13]') as backlog
    from json_each(:rows)
) as r
where true
on conflict (shard, minute, queue) do update
set completed = onefold_statistic.completed + excluded.completed,
    retried = onefold_statistic.retried + excluded.retried,
    deferred = onefold_statistic.deferred + excluded.deferred,
    dead = onefold_statistic.dead + excluded.dead,
    duplicates = onefold_statistic.duplicates + excluded.duplicates,
    measured = onefold_statistic.measured + excluded.measured,
    waited_total = onefold_statistic.waited_total + excluded.waited_total,
    waited_longest = max(onefold_statistic.waited_longest, excluded.waited_longest),
    ran_total = onefold_statistic.ran_total + excluded.ran_total,
    ran_longest = max(onefold_statistic.ran_longest, excluded.ran_longest),
    backlog = coalesce(
        max(onefold_statistic.backlog, excluded.backlog), excluded.backlog, onefold_statistic.backlog
    )
