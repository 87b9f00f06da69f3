-- Add counts to the statistics of their minutes and queues. Without a minute, to those of now.
insert into onefold_statistic (
    shard, minute, queue, completed, retried, deferred, dead, duplicates, measured, waited_total,
    waited_longest, ran_total, ran_longest, backlog
)
select
    json_extract(r.value, '$[0]'),
    coalesce(json_extract(r.value, '$[1]'), :now - :now % 60000000),
    json_extract(r.value, '$[2]'),
    json_extract(r.value, '$[3]'),
    json_extract(r.value, '$[4]'),
    json_extract(r.value, '$[5]'),
    json_extract(r.value, '$[6]'),
    json_extract(r.value, '$[7]'),
    json_extract(r.value, '$[8]'),
    json_extract(r.value, '$[9]'),
    json_extract(r.value, '$[10]'),
    json_extract(r.value, '$[11]'),
    json_extract(r.value, '$[12]'),
    json_extract(r.value, '$[13]')
from json_each(:rows) as r
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
    backlog = coalesce(max(onefold_statistic.backlog, excluded.backlog), excluded.backlog, onefold_statistic.backlog)
