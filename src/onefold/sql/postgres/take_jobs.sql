-- Lease up to :limit due jobs of one shard to a worker: the queues in the given order, each up to its
-- own limit, by priority, then run_at, then id. For each queue, the priorities with waiting jobs are
-- visited one by one (an index skip scan of job_ready), so that jobs that are scheduled ahead at a
-- better priority are never read. Rows are locked as they are read, and locked rows are skipped. The
-- update also clears the scope of a key that is held only while the job is queued.
with picked as materialized (
    select due.id
    from (
        select w.queue, w.limit_
        from
            unnest(:queues::text[], :limits::integer[]) with ordinality as w (queue, limit_, place)
        -- Not from paused, limited and ordered queues, which need a take that reads their settings.
        where not exists (
            select 1
            from onefold.queue as q
            where q.shard = :shard::smallint and q.name = w.queue and (q.paused or q.controlled)
        )
        order by w.place
    ) as wanted
    cross join lateral (
        with recursive lane (priority) as (
            (
                select j.priority
                from onefold.job as j
                where
                    j.shard = :shard::smallint
                    and j.queue = wanted.queue
                    and j.state = 0
                    and j.group_key is null
                order by j.priority
                limit 1
            )
            union all
            select (
                select j.priority
                from onefold.job as j
                where
                    j.shard = :shard::smallint
                    and j.queue = wanted.queue
                    and j.state = 0
                    and j.group_key is null
                    and j.priority > lane.priority
                order by j.priority
                limit 1
            )
            from lane
            where lane.priority is not null
        )
        select head.id
        from lane
        cross join lateral (
            select j.id
            from onefold.job as j
            where
                j.shard = :shard::smallint
                and j.queue = wanted.queue
                and j.state = 0
                and j.group_key is null
                and j.priority = lane.priority
                and j.run_at <= coalesce(
                    :now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint
                )
                and (
                    j.expires_at is null
                    or j.expires_at > coalesce(
                        :now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint
                    )
                )
                -- Written so that the planner estimates it as almost always true for every list.
                -- Otherwise it would sort all due jobs instead of reading the first few.
                and nullif(j.kind = any(:unknown::text[]), true) is not null
            order by j.run_at, j.id
            limit wanted.limit_
            for update skip locked
        ) as head
        where lane.priority is not null
        limit wanted.limit_
    ) as due
    limit :limit::integer
)
update onefold.job as j
set
    state = 1,
    not_before = null,
    attempt = j.attempt + 1,
    fence = j.fence + 1,
    worker = :worker::text,
    take_id = :take_id::text::uuid,
    taken_at = clock.now,
    lease_until = clock.now + :lease::bigint,
    unique_states = case when j.unique_states & 2 = 0 then 0 else j.unique_states end
from
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
        as clock (now)
-- An array, not a join: a prepared plan does not know :limit, and would read the whole table.
where j.shard = :shard::smallint and j.id = any(array(select picked.id from picked))
returning
    j.id::text, j.shard, j.tenant, j.queue, j.kind, j.state, j.priority, j.run_at, j.attempt,
    j.max_attempts, j.fence, j.lease_until, j.worker, j.payload, j.unique_key, j.unique_kind,
    j.generation, j.created_at, j.ended_at, j.keep_until, j.expires_at, j.result, j.error,
    j.reason, j.options, j.group_key, j.taken_at, j.defers, clock.now
