-- What a worker needs: groups of jobs, the history of deliveries, settings of queues, schedules.

-- Jobs of one group share its limits, and its order.
alter table onefold_job add column group_key text;

-- When the last delivery began.
alter table onefold_job add column taken_at integer;

-- Jobs with a group are taken under their queue's limits, the others without looking at any: so that a
-- thousand jobs of a group that must wait are never read on the way to one that need not.
drop index onefold_job_ready;
create index onefold_job_ready on onefold_job (shard, queue, priority, run_at, id)
    where state = 0 and group_key is null;
create index onefold_job_group on onefold_job (shard, queue, group_key, priority, run_at, id)
    where state = 0 and group_key is not null;

-- The oldest of a group, whatever its time: what an ordered group gives next. Ids are compared without
-- the hash in their middle, which says nothing about the order inside a millisecond.
create index onefold_job_group_order on onefold_job (
    shard, queue, group_key, (substr(cast(id as text), 1, 13) || substr(cast(id as text), 20))
) where state = 0 and group_key is not null;

-- What is due of all groups: many groups whose jobs are scheduled ahead are not looked through for it.
create index onefold_job_group_due on onefold_job (shard, queue, run_at, id)
    where state = 0 and group_key is not null;

-- What a rescue looks at, and what is counted for a limit.
drop index onefold_job_running;
create index onefold_job_running on onefold_job (shard, queue, group_key, id) where state = 1;

-- Deliveries that ended otherwise than well; the last one that did is told by the job itself.
create table onefold_attempt (
    shard integer not null,
    job_id text not null,
    fence integer not null,
    attempt integer not null,
    outcome text not null,                      -- retried, deferred, dead, cancelled, lease expired
    worker text,
    started_at integer,
    ended_at integer not null,
    reason text,
    error text,
    primary key (shard, job_id, fence)
);

-- Queues that somebody has said something about. A row per shard, so that a take asks its own shard alone;
-- the row on the shard of the queue's name is the one that is locked while a limit is counted.
create table onefold_queue (
    shard integer not null,
    name text not null,
    paused integer not null default 0,
    declared integer not null default 0,        -- by code, which may change it; else by an operator
    controlled integer not null default 0,      -- limited or ordered: the plain take leaves it alone
    ordered integer not null default 0,         -- one at a time and in order, per group
    concurrency integer,
    rate_count integer,
    rate_period integer,
    group_concurrency integer,
    group_rate_count integer,
    group_rate_period integer,
    updated_at integer not null,
    primary key (shard, name)
);

-- When the bucket of a rate will be full again: of a queue (group '') or of one of its groups.
create table onefold_rate (
    shard integer not null,
    queue text not null,
    group_key text not null,
    full_at integer not null,
    primary key (shard, queue, group_key)
);

create table onefold_schedule (
    shard integer not null,
    tenant text not null,
    name text not null,
    cron text not null,
    zone text not null,
    kind text not null,
    queue text not null,
    payload text not null,
    options text,                               -- what else an enqueue is told, as JSON
    catch_up integer not null,                  -- 0 skip 1 latest 2 all
    catch_up_most integer not null,
    paused integer not null default 0,
    declared integer not null default 0,        -- by code, which may change it; else by an operator
    next_tick integer not null,
    last_tick integer,
    updated_at integer not null,
    primary key (shard, tenant, name)
);
