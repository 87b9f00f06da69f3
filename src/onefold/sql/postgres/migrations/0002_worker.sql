-- What a worker needs: groups of jobs, the history of deliveries, settings of queues, schedules.

alter table onefold.job
    add column group_key text collate "C",      -- jobs of one group share its limits, and its order
    add column taken_at bigint;                 -- when the last delivery began

-- Jobs with a group are taken under their queue's limits, the others without looking at any: so that a
-- thousand jobs of a group that must wait are never read on the way to one that need not.
drop index onefold.job_ready;
create index job_ready on onefold.job (shard, queue, priority, run_at, id)
    where state = 0 and group_key is null;
create index job_group on onefold.job (shard, queue, group_key, priority, run_at, id)
    where state = 0 and group_key is not null;

-- The oldest of a group, whatever its time: what an ordered group gives next. Ids are compared without
-- the hash in their middle, which says nothing about the order inside a millisecond.
create index job_group_order on onefold.job (
    shard, queue, group_key, (substr(cast(id as text), 1, 13) || substr(cast(id as text), 20))
) where state = 0 and group_key is not null;

-- What is due of all groups: many groups whose jobs are scheduled ahead are not looked through for it.
create index job_group_due on onefold.job (shard, queue, run_at, id)
    where state = 0 and group_key is not null;

-- What a rescue looks at, and what is counted for a limit. Without the lease, so that heartbeats stay HOT.
drop index onefold.job_running;
create index job_running on onefold.job (shard, queue, group_key, id) where state = 1;

-- Deliveries that ended otherwise than well; the last one that did is told by the job itself.
create table onefold.attempt (
    shard smallint not null,
    job_id uuid not null,
    fence bigint not null,
    attempt smallint not null,
    outcome text collate "C" not null,          -- retried, deferred, dead, cancelled, lease expired
    worker text,
    started_at bigint,
    ended_at bigint not null,
    reason text,
    error text,
    primary key (shard, job_id, fence)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- Queues that somebody has said something about. A row per shard, so that a take asks its own shard alone;
-- the row on the shard of the queue's name is the one that is locked while a limit is counted.
create table onefold.queue (
    shard smallint not null,
    name text collate "C" not null,
    paused boolean not null default false,
    declared boolean not null default false,    -- by code, which may change it; else by an operator
    controlled boolean not null default false,  -- limited or ordered: the plain take leaves it alone
    ordered boolean not null default false,     -- one at a time and in order, per group
    concurrency integer,
    rate_count integer,
    rate_period bigint,
    group_concurrency integer,
    group_rate_count integer,
    group_rate_period bigint,
    updated_at bigint not null,
    primary key (shard, name)
) with (fillfactor = 50);

-- When the bucket of a rate will be full again: of a queue (group '') or of one of its groups.
create table onefold.rate (
    shard smallint not null,
    queue text collate "C" not null,
    group_key text collate "C" not null,
    full_at bigint not null,
    primary key (shard, queue, group_key)
) with (fillfactor = 50);

create table onefold.schedule (
    shard smallint not null,
    tenant text collate "C" not null,
    name text collate "C" not null,
    cron text not null,
    zone text not null,
    kind text collate "C" not null,
    queue text collate "C" not null,
    payload text not null,
    options text,                               -- what else an enqueue is told, as JSON
    catch_up smallint not null,                 -- 0 skip 1 latest 2 all
    catch_up_most integer not null,
    paused boolean not null default false,
    declared boolean not null default false,    -- by code, which may change it; else by an operator
    next_tick bigint not null,
    last_tick bigint,
    updated_at bigint not null,
    primary key (shard, tenant, name)
) with (fillfactor = 80);
