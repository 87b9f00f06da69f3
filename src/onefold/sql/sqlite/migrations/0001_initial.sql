-- The tables of Onefold. Times are microseconds since the epoch. `shard` is the first column of every key, as
-- on PostgreSQL, where the tables can be distributed by it.

create table onefold_migration (
    number integer primary key,
    name text not null,
    applied_at text not null default current_timestamp
);

-- The identity of this installation: it tells one database from another.
create table onefold_meta (
    name text primary key,
    value text not null
);

create table onefold_job (
    shard integer not null,
    id text not null,
    tenant text not null,
    queue text not null,
    kind text not null,
    state integer not null default 0,           -- 0 queued 1 running 2 completed 3 dead 4 cancelled
    priority integer not null,
    attempt integer not null default 0,
    max_attempts integer not null,
    vanished integer not null default 0,        -- consecutive deliveries whose worker vanished
    unique_states integer not null default 0,   -- bit n: the job holds its key in state n
    generation integer not null default 0,
    yielded integer not null default 0,         -- another job has the key; only a replay asks for it again
    stripped integer not null default 0,        -- only the key is left of this job
    run_at integer not null,
    not_before integer,                         -- the end of a backoff; a replace cannot shorten it
    fence integer not null default 0,
    lease_until integer,
    created_at integer not null,
    ended_at integer,
    keep_until integer,
    expires_at integer,
    unique_until integer,                       -- until then the job holds its key in every state
    unique_kind text,                           -- '' for a key across kinds
    unique_key text,
    fingerprint text,
    worker text,
    error text,
    reason text,
    options text,                               -- JSON
    next text,                                  -- JSON: the job that a rerun has requested
    group_key text,                             -- jobs of one group share its limits and its order
    taken_at integer,                           -- the start of the last delivery
    -- The fence of the delivery that was pushed and waits for its ack. Valid while it is equal to `fence`
    -- and the job is running, so that a take does not have to reset it.
    awaiting integer,
    awaiting_dead integer not null default 0,   -- without an ack in time the job is dead
    pushed text,                                -- JSON: the last exchange with the endpoint
    defers integer not null default 0,          -- since the job was enqueued or replayed
    -- The take that leased the job. The client makes this id, and finds its jobs by it after a lost answer.
    take_id text,
    -- Last: SQLite reads a long value to its end to find the columns after it.
    result text,
    payload text not null,
    primary key (shard, id)
);

-- One index for every scope of a unique key: a row is in it exactly while the job holds its key. The key
-- comes before tenant and kind, which many rows share: most comparisons end with it.
create unique index onefold_job_unique on onefold_job (shard, unique_key, tenant, unique_kind)
    where unique_key is not null
      and not yielded
      and (unique_until is not null or (unique_states >> state) & 1 = 1);

-- The other jobs with a unique key: it finds them, too. Most enter it when they end.
create index onefold_job_past_key on onefold_job (shard, unique_key, tenant, id)
    where unique_key is not null
      and (yielded or (unique_until is null and (unique_states >> state) & 1 = 0));

-- For takes, in their order. A take without limits does not read the jobs of groups: they may have to
-- wait, and there may be thousands of them.
create index onefold_job_ready on onefold_job (shard, queue, priority, run_at, id)
    where state = 0 and group_key is null;
create index onefold_job_group on onefold_job (shard, queue, group_key, priority, run_at, id)
    where state = 0 and group_key is not null;

-- The oldest job of an ordered group. Ids are compared without the hash in their middle, which says
-- nothing about the order inside a millisecond.
create index onefold_job_group_order on onefold_job (
    shard, queue, group_key, (substr(cast(id as text), 1, 13) || substr(cast(id as text), 20))
) where state = 0 and group_key is not null;

-- The due jobs of all groups. Groups whose jobs are all scheduled ahead are not read.
create index onefold_job_group_due on onefold_job (shard, queue, run_at, id)
    where state = 0 and group_key is not null;

-- For rescues, and to count what runs under a limit.
create index onefold_job_running on onefold_job (shard, queue, group_key, id) where state = 1;

create index onefold_job_keep on onefold_job (shard, keep_until) where keep_until is not null;

create index onefold_job_expiring on onefold_job (shard, expires_at)
    where state = 0 and expires_at is not null;

-- What operators look at, by time: jobs that are dead, and jobs that have failed and are tried again.
create index onefold_job_dead on onefold_job (shard, tenant, id, queue) where state = 3 and not stripped;

create index onefold_job_retrying on onefold_job (shard, tenant, id, queue)
    where state = 0 and attempt > 0;

-- A look of a tenant reads no jobs of others. An application without tenants does not need it.
create index onefold_job_tenant on onefold_job (shard, tenant, id) where tenant <> '';

-- Deliveries that did not complete their job. The job's own row describes the last delivery.
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

create table onefold_claim (
    shard integer not null,
    tenant text not null,
    surface text not null,
    scope text not null,
    key text not null,
    id text not null,
    owner text not null,
    state integer not null,                     -- 0 held 1 settled 2 free
    takeover integer not null,                  -- 0 rerun 1 resume 2 refuse
    fence integer not null,
    created_at integer not null,
    lease_until integer,
    settled_at integer,
    expires_at integer,
    keep integer,                               -- how long a settled claim is kept; null: for ever
    fingerprint text,
    result text,
    primary key (shard, tenant, surface, scope, key)
);

create index onefold_claim_expiry on onefold_claim (shard, expires_at) where expires_at is not null;

-- Suppressed duplicates. Rows are only added.
create table onefold_duplicate (
    number integer primary key autoincrement,
    shard integer not null,
    job_id text not null,
    at integer not null,
    request_id text
);

create index onefold_duplicate_job on onefold_duplicate (shard, job_id);

-- The same per job, made from `duplicate` by a worker: a count and the last few.
create table onefold_duplicate_tally (
    shard integer not null,
    job_id text not null,
    count integer not null,
    first_at integer not null,
    last_at integer not null,
    recent text not null,
    primary key (shard, job_id)
);

-- Queues that have settings. Each has a row per shard, so that a take reads its own shard only. The row
-- on the shard of the queue's name is locked while a limit is counted.
create table onefold_queue (
    shard integer not null,
    name text not null,
    paused integer not null default 0,
    declared integer not null default 0,        -- by code, which may change it; else by an operator
    controlled integer not null default 0,      -- limited, ordered or held: the plain take skips it
    ordered integer not null default 0,         -- one job at a time and in order, per group
    concurrency integer,
    rate_count integer,
    rate_period integer,
    group_concurrency integer,
    group_rate_count integer,
    group_rate_period integer,
    updated_at integer not null,
    -- No job is taken until then. Afterwards one job is taken at a time, until the queue is opened.
    held_until integer,
    held_why text,                              -- backpressure, deferred, circuit
    failures integer not null default 0,        -- consecutive failures of the endpoint
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
    options text,                               -- JSON: the other options of its jobs
    catch_up integer not null,                  -- 0 skip 1 latest 2 all
    catch_up_most integer not null,
    paused integer not null default 0,
    declared integer not null default 0,        -- by code, which may change it; else by an operator
    next_tick integer not null,
    last_tick integer,
    updated_at integer not null,
    primary key (shard, tenant, name)
);

-- Queues of the server: where their jobs are pushed, and how. On the shard of the queue's full name.
create table onefold_served_queue (
    shard integer not null,
    tenant text not null,
    name text not null,
    settings text not null,                     -- JSON
    created_at integer not null,
    updated_at integer not null,
    primary key (shard, tenant, name)
);

create table onefold_api_key (
    shard integer not null,
    id text not null,
    tenant text not null,
    name text not null,
    scopes text not null,
    digest text not null,                       -- of the secret, which is not stored
    rate_count integer,
    rate_period integer,
    full_at integer not null default 0,         -- when the bucket of the rate will be full again
    created_at integer not null,
    expires_at integer,
    revoked_at integer,
    primary key (shard, id)
);

-- Workers that run. A worker renews its row, and deletes it when it stops.
create table onefold_worker (
    shard integer not null,
    id text not null,
    name text not null,                         -- the same as `worker` of its jobs
    host text not null,
    pid integer not null,
    queues text not null,                       -- JSON
    kinds text,                                 -- JSON; null: it pushes jobs of all kinds to endpoints
    concurrency integer not null,
    started_at integer not null,
    seen_at integer not null,
    primary key (shard, id)
);

-- What has happened in a minute, per queue. Added up in memory and written from time to time.
create table onefold_statistic (
    shard integer not null,
    minute integer not null,                    -- its beginning
    queue text not null,                        -- '' for duplicates that belong to no job
    completed integer not null default 0,
    retried integer not null default 0,
    deferred integer not null default 0,
    dead integer not null default 0,
    duplicates integer not null default 0,
    measured integer not null default 0,        -- deliveries whose times are in the next columns
    waited_total integer not null default 0,
    waited_longest integer not null default 0,
    ran_total integer not null default 0,
    ran_longest integer not null default 0,
    backlog integer,                            -- the largest sample of the due jobs
    primary key (shard, minute, queue)
);
