-- What a worker reads about its queues: settings, whether a job is due, and when the next job will be.
-- For each queue, the priorities with waiting jobs are visited one by one (an index skip scan of
-- job_ready), in the spans of exchange_jobs; jobs with a group are found by their time (job_group_due).
with recursive clock (now) as materialized (
    select coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
), lane (queue, before, priority, run_at) as (
    select span.queue, span.before, first.priority, first.run_at
    from
        clock,
        unnest(
            :from_shard::smallint[], :from_queue::text[], :from_priority::integer[],
            :from_run_at::bigint[], (:from_id::text[])::uuid[], :before_priority::integer[]
        ) as span (shard, queue, priority, run_at, id, before)
    cross join lateral (
        select j.priority, j.run_at
        from onefold.job as j
        where
            j.shard = :shard::smallint
            and j.queue = span.queue
            and j.state = 0
            and j.group_key is null
            and (j.priority, j.run_at, j.id) > (span.priority, span.run_at, span.id)
            and j.priority < span.before
            and (j.expires_at is null or j.expires_at > clock.now)
        order by j.priority, j.run_at, j.id
        limit 1
    ) as first
    where span.shard = :shard::smallint
    union all
    select lane.queue, lane.before, later.priority, later.run_at
    from clock, lane
    cross join lateral (
        select j.priority, j.run_at
        from onefold.job as j
        where
            j.shard = :shard::smallint
            and j.queue = lane.queue
            and j.state = 0
            and j.group_key is null
            and j.priority > lane.priority
            and j.priority < lane.before
            and (j.expires_at is null or j.expires_at > clock.now)
        order by j.priority, j.run_at, j.id
        limit 1
    ) as later
)
select
    wanted.queue,
    coalesce(q.paused, false),
    coalesce(q.controlled, false),
    exists (select 1 from lane where lane.queue = wanted.queue and lane.run_at <= clock.now),
    coalesce(
        (
            select j.run_at <= clock.now
            from onefold.job as j
            where
                j.shard = :shard::smallint
                and j.queue = wanted.queue
                and j.state = 0
                and j.group_key is not null
                and (j.expires_at is null or j.expires_at > clock.now)
            order by j.run_at
            limit 1
        ),
        false
    ),
    least(
        (
            select min(ahead.run_at)
            from lane
            cross join lateral (
                select j.run_at
                from onefold.job as j
                where
                    j.shard = :shard::smallint
                    and j.queue = wanted.queue
                    and j.state = 0
                    and j.group_key is null
                    and j.priority = lane.priority
                    and j.run_at > clock.now
                order by j.run_at
                limit 1
            ) as ahead
            where lane.queue = wanted.queue
        ),
        (
            select j.run_at
            from onefold.job as j
            where
                j.shard = :shard::smallint
                and j.queue = wanted.queue
                and j.state = 0
                and j.group_key is not null
                and j.run_at > clock.now
            order by j.run_at
            limit 1
        )
    ),
    clock.now
from unnest(:queues::text[]) as wanted (queue)
left join onefold.queue as q on q.shard = :shard::smallint and q.name = wanted.queue
cross join clock
