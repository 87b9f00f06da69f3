-- The tables of Onefold. Times are microseconds since the epoch. `shard` leads every key, as on
-- PostgreSQL, where the same schema can be distributed by it.

create table onefold_migration (
    number integer primary key,
    name text not null,
    applied_at text not null default current_timestamp
);

-- The identity of this installation: how a connection is told from one to another database.
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
    vanished integer not null default 0,        -- deliveries in a row whose worker vanished
    unique_states integer not null default 0,   -- bit n: the key is held in state n
    generation integer not null default 0,
    yielded integer not null default 0,         -- the key went to another job; a replay asks for it again
    stripped integer not null default 0,        -- a tombstone: holds its key, and nothing else
    run_at integer not null,
    not_before integer,                         -- the end of a backoff, which no newcomer may shorten
    fence integer not null default 0,
    lease_until integer,
    created_at integer not null,
    ended_at integer,
    keep_until integer,
    expires_at integer,
    unique_until integer,                       -- until then the key is held in every state
    unique_kind text,                           -- '' is the tenant's name space across kinds
    unique_key text,
    fingerprint text,
    worker text,
    payload text not null,
    result text,
    error text,
    reason text,
    options text,
    next text,                                  -- the successor that a rerun asked for
    primary key (shard, id)
);

-- Every scope of every unique key, at once: the row is in the index exactly while it holds its key.
create unique index onefold_job_unique on onefold_job (shard, tenant, unique_kind, unique_key)
    where unique_key is not null
      and not yielded
      and (unique_until is not null or (unique_states >> state) & 1 = 1);

-- What a take looks at, in its order. Finished and running jobs are not in it.
create index onefold_job_ready on onefold_job (shard, queue, priority, run_at, id) where state = 0;

-- What a rescue looks at.
create index onefold_job_running on onefold_job (shard, id) where state = 1;

create index onefold_job_keep on onefold_job (shard, keep_until) where keep_until is not null;

create index onefold_job_expiring on onefold_job (shard, expires_at)
    where state = 0 and expires_at is not null;

create index onefold_job_dead on onefold_job (shard, tenant, queue, id) where state = 3;

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
    keep integer,                               -- how long a settled claim is remembered; null: until told
    fingerprint text,
    result text,
    primary key (shard, tenant, surface, scope, key)
);

create index onefold_claim_expiry on onefold_claim (shard, expires_at) where expires_at is not null;

-- Suppressed duplicates, append-only, folded by a chore.
create table onefold_duplicate (
    number integer primary key autoincrement,
    shard integer not null,
    job_id text not null,
    at integer not null,
    request_id text
);

create index onefold_duplicate_job on onefold_duplicate (shard, job_id);

-- The same, folded: a count and the last few.
create table onefold_duplicate_tally (
    shard integer not null,
    job_id text not null,
    count integer not null,
    first_at integer not null,
    last_at integer not null,
    recent text not null,
    primary key (shard, job_id)
);
