-- The tables of Onefold. Times are microseconds since the epoch. `shard` leads every key, so that
-- the same schema can be distributed by it. Text keys compare by bytes.

create schema if not exists onefold;

create table onefold.migration (
    number integer primary key,
    name text not null,
    applied_at timestamptz not null default now()
);

-- The identity of this installation: how a connection is told from one to another database.
-- It is kept as JSON in the comment of this table too, where it can be read without provoking an
-- error on a database that has no such table.
create table onefold.meta (
    name text primary key,
    value text not null
);

create table onefold.job (
    shard smallint not null,
    id uuid not null,
    tenant text collate "C" not null,
    queue text collate "C" not null,
    kind text collate "C" not null,
    state smallint not null default 0,          -- 0 queued 1 running 2 completed 3 dead 4 cancelled
    priority smallint not null,
    attempt smallint not null default 0,
    max_attempts smallint not null,
    vanished smallint not null default 0,       -- deliveries in a row whose worker vanished
    unique_states smallint not null default 0,  -- bit n: the key is held in state n
    generation integer not null default 0,
    yielded boolean not null default false,    -- the key went to another job; a replay asks for it again
    stripped boolean not null default false,    -- a tombstone: holds its key, and nothing else
    run_at bigint not null,
    not_before bigint,                          -- the end of a backoff, which no newcomer may shorten
    fence bigint not null default 0,
    lease_until bigint,
    created_at bigint not null,
    ended_at bigint,
    keep_until bigint,
    expires_at bigint,
    unique_until bigint,                        -- until then the key is held in every state
    unique_kind text collate "C",               -- '' is the tenant's name space across kinds
    unique_key text collate "C",
    fingerprint text collate "C",
    worker text,
    payload text not null,
    result text,
    error text,
    reason text,
    options text,
    next text,                                  -- the successor that a rerun asked for
    primary key (shard, id)
) with (
    -- Room on the page, so that heartbeats rewrite a row in place (HOT) and touch no index.
    fillfactor = 80,
    -- A queue table is mostly dead rows by the time the defaults would notice.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 1
);

-- Every scope of every unique key, at once: the row is in the index exactly while it holds its key.
create unique index job_unique on onefold.job (shard, tenant, unique_kind, unique_key)
    where unique_key is not null
      and not yielded
      and (unique_until is not null or (unique_states >> state) & 1 = 1);

-- What a take looks at, in its order. Finished and running jobs are not in it.
create index job_ready on onefold.job (shard, queue, priority, run_at, id) where state = 0;

-- What a rescue looks at. Without the lease, so that heartbeats stay HOT.
create index job_running on onefold.job (shard, id) where state = 1;

create index job_keep on onefold.job (shard, keep_until) where keep_until is not null;

create index job_expiring on onefold.job (shard, expires_at)
    where state = 0 and expires_at is not null;

create index job_dead on onefold.job (shard, tenant, queue, id) where state = 3;

create table onefold.claim (
    shard smallint not null,
    tenant text collate "C" not null,
    surface text collate "C" not null,
    scope text collate "C" not null,
    key text collate "C" not null,
    id uuid not null,
    owner uuid not null,
    state smallint not null,                    -- 0 held 1 settled 2 free
    takeover smallint not null,                 -- 0 rerun 1 resume 2 refuse
    fence bigint not null,
    created_at bigint not null,
    lease_until bigint,
    settled_at bigint,
    expires_at bigint,
    keep bigint,                                -- how long a settled claim is remembered; null: until told
    fingerprint text collate "C",
    result text,
    primary key (shard, tenant, surface, scope, key)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

create index claim_expiry on onefold.claim (shard, expires_at) where expires_at is not null;

-- Suppressed duplicates, append-only: an update of the holder's row would make other enqueues,
-- heartbeats and finishes wait for this transaction.
create table onefold.duplicate (
    shard smallint not null,
    number bigint generated always as identity,
    job_id uuid not null,
    at bigint not null,
    request_id text,
    primary key (shard, number)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

create index duplicate_job on onefold.duplicate (shard, job_id);

-- The same, folded by a chore: a count and the last few.
create table onefold.duplicate_tally (
    shard smallint not null,
    job_id uuid not null,
    count bigint not null,
    first_at bigint not null,
    last_at bigint not null,
    recent text not null,
    primary key (shard, job_id)
);
