-- Complete deliveries of one shard whose fence is still valid, then lease up to :limit due jobs to a
-- worker. Either part may be empty.
--
-- Deliveries are given in the order of their ids, which is the order of the locks. With :plain, jobs with
-- their own retention or a successor are left out: they need further statements, in one transaction.
-- Rows that other transactions have locked are skipped in both parts; finish_jobs waits for them.
--
-- Jobs are leased from the queues in the given order, each up to its own limit, by priority, then run_at,
-- then id. For each queue, the priorities with waiting jobs are visited one by one (an index skip scan of
-- job_ready), so that jobs that are scheduled ahead at a better priority are never read. Each is read from
-- its first waiting job: what is before it has been taken, and may still be in the index. The spans of a
-- queue (:from_… to :before_priority) leave out what the last takes have passed. The update also clears the
-- scope of a key that is held only while the job is queued. What is the same for all leased jobs is not
-- returned.
--
-- A last row without an id follows unless all deliveries are completed and need nothing more: it has in
-- the place of the payload those that are completed, as JSON.
--
-- For the planner: every row is found by its whole key or its place (ctid), and "nullif(x, …) = x", which
-- is true, makes it expect one row. So a plan that was made for an empty table is right for a full one. No
-- estimate depends on a parameter: otherwise the statement would be planned at each execution. A row that
-- was changed between the snapshot and its lock has another place: it is skipped, as if it were locked.
with clock (now) as materialized (
    select coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
), held as materialized (
    select h.at, r.place, r.result, clock.now
    from
        clock,
        unnest((:id::text[])::uuid[], :fence::bigint[], :result::text[])
            with ordinality as r (id, fence, result, place)
    cross join lateral (
        select j.ctid as at
        from onefold.job as j
        where
            j.shard = :shard::smallint
            and j.id = r.id
            and j.fence = r.fence
            -- Running; or its lease or ack has timed out (it was not handed back), and it was not taken
            -- since.
            and (
                j.state = 1
                or (j.state = 0 and j.vanished > 0 and j.not_before is not null)
                or (j.state = 0 and j.awaiting = j.fence)
            )
            and (
                not :plain::boolean
                or (j.next is null and (j.options is null or strpos(j.options, '"keep"') = 0))
            )
        limit 1
        for update of j skip locked
    ) as h
    where nullif(r.place, 0) = r.place
), done as (
    update onefold.job as j
    set
        state = 2,
        not_before = null,
        vanished = 0,
        lease_until = null,
        result = held.result,
        ended_at = held.now,
        keep_until = held.now + case
            when :plain::boolean then :keep::bigint
            else coalesce((j.options::jsonb #>> '{keep,completed}')::bigint, :keep::bigint)
        end,
        -- A successor gets the key.
        yielded = j.yielded or j.next is not null
    from held
    where j.shard = :shard::smallint and j.ctid = held.at and nullif(held.place, 0) = held.place
    returning j.id, j.fence, j.next, j.keep_until <= held.now as is_over
), picked as materialized (
    select due.at, due.fence, wanted.now, wanted.take_id
    from (
        select w.queue, w.limit_, clock.now, :take_id::text::uuid as take_id
        from
            unnest(:queues::text[], :limits::integer[]) with ordinality as w (queue, limit_, place),
            clock
        where
            nullif(w.place, 0) = w.place
            -- After the deliveries: one whose lease has ended is completed, and not leased again.
            and (select count(*) from done) >= 0
            -- Not from paused, limited and ordered queues, which need a take that reads their settings.
            and not exists (
                select 1
                from onefold.queue as q
                where q.shard = :shard::smallint and q.name = w.queue and (q.paused or q.controlled)
            )
        order by w.place
    ) as wanted
    cross join lateral (
        select lane.at, lane.fence
        from
            unnest(
                :from_shard::smallint[], :from_queue::text[], :from_priority::integer[],
                :from_run_at::bigint[], (:from_id::text[])::uuid[], :before_priority::integer[]
            ) as span (shard, queue, priority, run_at, id, before)
        cross join lateral (
            with recursive first (priority, run_at, id) as (
                (
                    select j.priority, j.run_at, j.id
                    from onefold.job as j
                    where
                        j.shard = :shard::smallint
                        and j.queue = wanted.queue
                        and j.state = 0
                        and j.group_key is null
                        and (j.priority, j.run_at, j.id) > (span.priority, span.run_at, span.id)
                        and j.priority < span.before
                    order by j.priority, j.run_at, j.id
                    limit 1
                )
                union all
                select later.priority, later.run_at, later.id
                from first
                cross join lateral (
                    select j.priority, j.run_at, j.id
                    from onefold.job as j
                    where
                        j.shard = :shard::smallint
                        and j.queue = wanted.queue
                        and j.state = 0
                        and j.group_key is null
                        and j.priority > first.priority
                        and j.priority < span.before
                    order by j.priority, j.run_at, j.id
                    limit 1
                ) as later
            )
            select head.at, head.fence
            from first
            cross join lateral (
                select j.ctid as at, j.fence
                from onefold.job as j
                where
                    j.shard = :shard::smallint
                    and j.queue = wanted.queue
                    and j.state = 0
                    and j.group_key is null
                    and j.priority = first.priority
                    and (j.run_at, j.id) >= (first.run_at, first.id)
                    and j.run_at <= wanted.now
                    and (j.expires_at is null or j.expires_at > wanted.now)
                    -- Estimated as almost always true. Otherwise all due jobs would be sorted.
                    and nullif(coalesce(array_position(:unknown::text[], j.kind), 0) > 0, true) is not null
                order by j.run_at, j.id
                limit wanted.limit_
                for update skip locked
            ) as head
            limit wanted.limit_
        ) as lane
        where span.shard = :shard::smallint and span.queue = wanted.queue
        limit wanted.limit_
    ) as due
    limit (select :limit::integer)
), taken as (
    update onefold.job as j
    set
        state = 1,
        not_before = null,
        attempt = j.attempt + 1,
        fence = j.fence + 1,
        worker = :worker::text,
        take_id = picked.take_id,
        taken_at = picked.now,
        lease_until = picked.now + :lease::bigint,
        unique_states = case when j.unique_states & 2 = 0 then 0 else j.unique_states end
    from picked
    where j.shard = :shard::smallint and j.ctid = picked.at and nullif(picked.fence, -1) = picked.fence
    returning
        j.id::text, j.tenant, j.queue, j.kind, j.priority, j.run_at, j.attempt, j.max_attempts, j.fence,
        j.payload, j.unique_key, j.generation, j.created_at, j.expires_at, j.error, j.options, j.group_key,
        j.defers, j.taken_at
)
select taken.* from taken
union all
select
    null, null, null, null, null, null, null, null, null,
    (select json_agg(json_build_array(d.id, d.fence, d.next, d.is_over)) from done as d)::text,
    null, null, null, null, null, null, null, null, null
from done
having count(*) < cardinality(:id::text[]) or bool_or(done.next is not null or done.is_over)
