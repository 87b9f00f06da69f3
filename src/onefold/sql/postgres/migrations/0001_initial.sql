-- The tables of Onefold, and `onefold_enqueue`. Times are microseconds since the epoch. `shard` is the first
-- column of every key, so that the tables can be distributed by it. Text keys compare by bytes.

create schema if not exists onefold;

create table onefold.migration (
    number integer primary key,
    name text not null,
    applied_at timestamptz not null default now()
);

-- The identity of this installation: it tells one database from another.
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
    vanished smallint not null default 0,       -- consecutive deliveries whose worker vanished
    unique_states smallint not null default 0,  -- bit n: the job holds its key in state n
    generation integer not null default 0,
    yielded boolean not null default false,     -- another job has the key; only a replay asks for it again
    stripped boolean not null default false,    -- only the key is left of this job
    run_at bigint not null,
    not_before bigint,                          -- the end of a backoff; a replace cannot shorten it
    fence bigint not null default 0,
    lease_until bigint,
    created_at bigint not null,
    ended_at bigint,
    keep_until bigint,
    expires_at bigint,
    unique_until bigint,                        -- until then the job holds its key in every state
    unique_kind text collate "C",               -- '' for a key across kinds
    unique_key text collate "C",
    fingerprint text collate "C",
    worker text,
    payload text not null,
    result text,
    error text,
    reason text,
    options text,                               -- JSON
    next text,                                  -- JSON: the job that a rerun has requested
    group_key text collate "C",                 -- jobs of one group share its limits and its order
    taken_at bigint,                            -- the start of the last delivery
    -- The fence of the delivery that was pushed and waits for its ack. Valid while it is equal to `fence`
    -- and the job is running, so that a take does not have to reset it.
    awaiting bigint,
    awaiting_dead boolean not null default false,   -- without an ack in time the job is dead
    pushed text,                                -- JSON: the last exchange with the endpoint
    defers integer not null default 0,          -- since the job was enqueued or replayed
    -- The take that leased the job. The client makes this id, and finds its jobs by it after a lost answer.
    take_id uuid,
    primary key (shard, id)
) with (
    -- Room on the page, so that heartbeats rewrite a row in place (HOT) and touch no index.
    fillfactor = 80,
    -- With the default settings, autovacuum would start when most rows of a queue table are dead.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 1,
    -- An empty queue keeps its pages. A plan that is made for a file without pages would read the whole
    -- table later, until it is analyzed; and cutting pages off needs an exclusive lock.
    vacuum_truncate = false
);

-- One index for every scope of a unique key: a row is in it exactly while the job holds its key. The key
-- comes before tenant and kind, which many rows share: most comparisons end with it.
create unique index job_unique on onefold.job (shard, unique_key, tenant, unique_kind)
    where unique_key is not null
      and not yielded
      and (unique_until is not null or (unique_states >> state) & 1 = 1);

-- The other jobs with a unique key: it finds them, too. Most enter it when they end.
create index job_past_key on onefold.job (shard, unique_key, tenant, id)
    where unique_key is not null
      and (yielded or (unique_until is null and (unique_states >> state) & 1 = 0));

-- For takes, in their order. A take without limits does not read the jobs of groups: they may have to
-- wait, and there may be thousands of them.
create index job_ready on onefold.job (shard, queue, priority, run_at, id)
    where state = 0 and group_key is null;
create index job_group on onefold.job (shard, queue, group_key, priority, run_at, id)
    where state = 0 and group_key is not null;

-- The oldest job of an ordered group. Ids are compared without the hash in their middle, which says
-- nothing about the order inside a millisecond.
create index job_group_order on onefold.job (
    shard, queue, group_key, (substr(cast(id as text), 1, 13) || substr(cast(id as text), 20))
) where state = 0 and group_key is not null;

-- The due jobs of all groups. Groups whose jobs are all scheduled ahead are not read.
create index job_group_due on onefold.job (shard, queue, run_at, id)
    where state = 0 and group_key is not null;

-- For rescues, and to count what runs under a limit. Without the lease, so that heartbeats stay HOT.
create index job_running on onefold.job (shard, queue, group_key, id) where state = 1;

create index job_keep on onefold.job (shard, keep_until) where keep_until is not null;

create index job_expiring on onefold.job (shard, expires_at)
    where state = 0 and expires_at is not null;

-- What operators look at, by time: jobs that are dead, and jobs that have failed and are tried again.
create index job_dead on onefold.job (shard, tenant, id, queue) where state = 3 and not stripped;

create index job_retrying on onefold.job (shard, tenant, id, queue)
    where state = 0 and attempt > 0;

-- A look of a tenant reads no jobs of others. An application without tenants does not need it.
create index job_tenant on onefold.job (shard, tenant, id) where tenant <> '';

-- Deliveries that did not complete their job. The job's own row describes the last delivery.
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
    keep bigint,                                -- how long a settled claim is kept; null: for ever
    fingerprint text collate "C",
    result text,
    primary key (shard, tenant, surface, scope, key)
) with (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    vacuum_truncate = false
);

create index claim_expiry on onefold.claim (shard, expires_at) where expires_at is not null;

-- Suppressed duplicates. Rows are only added: an update of the holder's row would make other enqueues,
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

-- The same per job, made from `duplicate` by a worker: a count and the last few.
create table onefold.duplicate_tally (
    shard smallint not null,
    job_id uuid not null,
    count bigint not null,
    first_at bigint not null,
    last_at bigint not null,
    recent text not null,
    primary key (shard, job_id)
);

-- Queues that have settings. Each has a row per shard, so that a take reads its own shard only. The row
-- on the shard of the queue's name is locked while a limit is counted.
create table onefold.queue (
    shard smallint not null,
    name text collate "C" not null,
    paused boolean not null default false,
    declared boolean not null default false,    -- by code, which may change it; else by an operator
    controlled boolean not null default false,  -- limited, ordered or held: the plain take skips it
    ordered boolean not null default false,     -- one job at a time and in order, per group
    concurrency integer,
    rate_count integer,
    rate_period bigint,
    group_concurrency integer,
    group_rate_count integer,
    group_rate_period bigint,
    updated_at bigint not null,
    -- No job is taken until then. Afterwards one job is taken at a time, until the queue is opened.
    held_until bigint,
    held_why text,                              -- backpressure, deferred, circuit
    failures integer not null default 0,        -- consecutive failures of the endpoint
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
    options text,                               -- JSON: the other options of its jobs
    catch_up smallint not null,                 -- 0 skip 1 latest 2 all
    catch_up_most integer not null,
    paused boolean not null default false,
    declared boolean not null default false,    -- by code, which may change it; else by an operator
    next_tick bigint not null,
    last_tick bigint,
    updated_at bigint not null,
    primary key (shard, tenant, name)
) with (fillfactor = 80);

-- Queues of the server: where their jobs are pushed, and how. On the shard of the queue's full name.
create table onefold.served_queue (
    shard smallint not null,
    tenant text collate "C" not null,
    name text collate "C" not null,
    settings text not null,                     -- JSON
    created_at bigint not null,
    updated_at bigint not null,
    primary key (shard, tenant, name)
);

create table onefold.api_key (
    shard smallint not null,
    id text collate "C" not null,
    tenant text collate "C" not null,
    name text not null,
    scopes text not null,
    digest text not null,                       -- of the secret, which is not stored
    rate_count integer,
    rate_period bigint,
    full_at bigint not null default 0,          -- when the bucket of the rate will be full again
    created_at bigint not null,
    expires_at bigint,
    revoked_at bigint,
    primary key (shard, id)
) with (fillfactor = 50);

-- Workers that run. A worker renews its row, and deletes it when it stops.
create table onefold.worker (
    shard smallint not null,
    id uuid not null,
    name text not null,                         -- the same as `worker` of its jobs
    host text not null,
    pid integer not null,
    queues text not null,                       -- JSON
    kinds text,                                 -- JSON; null: it pushes jobs of all kinds to endpoints
    concurrency integer not null,
    started_at bigint not null,
    seen_at bigint not null,
    primary key (shard, id)
) with (fillfactor = 50);

-- What has happened in a minute, per queue. Added up in memory and written from time to time.
create table onefold.statistic (
    shard smallint not null,
    minute bigint not null,                     -- its beginning
    queue text collate "C" not null,            -- '' for duplicates that belong to no job
    completed bigint not null default 0,
    retried bigint not null default 0,
    deferred bigint not null default 0,
    dead bigint not null default 0,
    duplicates bigint not null default 0,
    measured bigint not null default 0,         -- deliveries whose times are in the next columns
    waited_total bigint not null default 0,
    waited_longest bigint not null default 0,
    ran_total bigint not null default 0,
    ran_longest bigint not null default 0,
    backlog bigint,                             -- the largest sample of the due jobs
    primary key (shard, minute, queue)
) with (fillfactor = 50);

-- --- onefold_enqueue: enqueue from SQL, in the transaction of the caller --------------------------------
-- The rules and the stored rows are those of the library. tests/sql_function compares the two.

create function onefold._reject(argument text, reason text) returns void
language plpgsql
as $function$
begin
    raise exception using
        errcode = 'invalid_parameter_value', message = argument || ' ' || reason, column = argument;
end
$function$;

create function onefold._check_name(value text, argument text) returns void
language plpgsql
as $function$
declare
    bad_character text := substring(value from $$[\u0001-\u001f\u007f-\u009f,*?\[\]{}\\]$$);
begin
    if value is null then
        perform onefold._reject(argument, 'must not be null');
    elsif char_length(value) not between 1 and 200 then
        perform onefold._reject(
            argument, format('must have 1 to 200 characters, got %s', char_length(value)));
    elsif bad_character is not null then
        perform onefold._reject(argument, format('must not contain %L, got %L', bad_character, value));
    elsif value in ('.', '..') then
        perform onefold._reject(argument, format('must not be %L: URLs cannot contain it', value));
    end if;
end
$function$;

create function onefold._check_key(value text, argument text, minimum integer default 1) returns void
language plpgsql
as $function$
declare
    size integer := octet_length(convert_to(value, 'UTF8'));
begin
    if value is null then
        perform onefold._reject(argument, 'must not be null');
    elsif size < minimum then
        perform onefold._reject(argument, 'must not be empty');
    elsif size > 512 then
        perform onefold._reject(argument, format('must have at most 512 bytes, got %s', size));
    end if;
end
$function$;

create function onefold._check_number(value integer, argument text, minimum integer, maximum integer)
returns smallint
language plpgsql
as $function$
begin
    if value is null or value not between minimum and maximum then
        perform onefold._reject(argument, format(
            'must be a whole number from %s to %s, got %s', minimum, maximum, coalesce(value::text, 'null')));
    end if;
    return value;
end
$function$;

create function onefold._to_micros(value timestamptz, argument text) returns bigint
language plpgsql
as $function$
begin
    if value not between '0001-01-01 00:00:00+00' and '9999-12-31 23:59:59.999999+00' then
        perform onefold._reject(argument, format('must be in the years 1 to 9999 of UTC, got %s', value));
    end if;
    return extract(epoch from value) * 1000000;
end
$function$;

create function onefold._to_micros(value interval, argument text, minimum bigint) returns bigint
language plpgsql
as $function$
declare
    micros numeric := extract(epoch from value) * 1000000;
begin
    if micros < minimum then
        perform onefold._reject(argument, format(
            'must not be %s, got %s',
            case when minimum = 0 then 'negative' else 'shorter than a microsecond' end, value));
    elsif micros > 6307200000000000 then
        perform onefold._reject(argument, format('must not be longer than 73000 days, got %s', value));
    end if;
    return micros;
end
$function$;

-- A number as msgspec writes it: an integer by its digits, any other number as the shortest text that
-- reads as the same float. PostgreSQL avoids texts that are midway between two floats, msgspec does not.
create function onefold._number_text(token text) returns text
language plpgsql
immutable
set extra_float_digits = 1
as $function$
declare
    sign text := case when left(token, 1) = '-' then '-' else '' end;
    parts text[];
    digits text;
    magnitude numeric;                          -- the decimal point stands after so many of the digits
    point integer;                              -- the same, for the shortest text
    value float8;
    shorter numeric;
begin
    if token !~ '[.eE]' then
        return case when token = '-0' then '0' else token end;
    end if;
    parts := regexp_match(ltrim(token, '-'), '^([0-9]+)\.?([0-9]*)(?:[eE](.+))?$');
    digits := ltrim(parts[1] || parts[2], '0');
    magnitude := length(digits) - length(parts[2]) + coalesce(parts[3]::numeric, 0);
    -- The cast to float8 rejects numbers that are too large or too small. msgspec reads these as zero.
    if digits = '' or magnitude < -323
        or magnitude = -323 and left(rpad(digits, 19, '0'), 19) <= '2470328229206232720'
    then
        return sign || '0.0';
    elsif magnitude > 309
        or magnitude = 309 and left(rpad(digits, 19, '0'), 19) >= '1797693134862315808'
    then
        perform onefold._reject('payload', 'contains a number that is too large for a float');
    end if;
    value := ltrim(token, '-')::float8;

    parts := regexp_match(value::text, '^([0-9]+)\.?([0-9]*)(?:e(.+))?$');
    digits := ltrim(parts[1] || parts[2], '0');
    point := length(digits) - length(parts[2]) + coalesce(parts[3]::integer, 0);
    digits := rtrim(digits, '0');
    -- Only whole numbers of about this size have a shorter text midway between two floats.
    if length(digits) > 15 and point between 16 and 40 then
        for step in 0..1 loop
            shorter := trunc(digits::numeric / 10) + step;
            if (shorter::text || 'e' || (point - length(digits) + 1))::float8 = value then
                point := point + length(shorter::text) - (length(digits) - 1);
                digits := rtrim(shorter::text, '0');
                exit;
            end if;
        end loop;
    end if;

    return sign || case
        when point not between -4 and 16 then
            left(digits, 1) || case when length(digits) > 1 then '.' || substr(digits, 2) else '' end
            || 'e' || (point - 1)
        when point <= 0 then '0.' || repeat('0', -point) || digits
        when point < length(digits) then left(digits, point) || '.' || substr(digits, point + 1)
        else rpad(digits, point, '0') || '.0'
    end;
end
$function$;

-- The payload as fingerprints use it: without white space, members in the order of their bytes, the last
-- one of several members with the same name. The query makes one piece of text per value and per closing
-- bracket, each with its path, and joins them in the order of their paths.
create function onefold._sorted_payload(payload text) returns text
language plpgsql
immutable
as $function$
declare
    sorted text;
    depth integer;
begin
    with recursive node (path, prefix, value) as (
        select array[]::integer[], '', btrim(payload, ' ' || chr(9) || chr(10) || chr(13))::json
        union all
        select n.path || child.place, child.prefix, child.value
        from node as n
        cross join lateral (
            select
                row_number() over (order by m.name)::integer,
                case when row_number() over (order by m.name) > 1 then ',' else '' end
                    || to_json(m.name)::text || ':',
                m.value
            from (
                select distinct on (e.name collate "C") e.name collate "C" as name, e.value
                from json_each(case when json_typeof(n.value) = 'object' then n.value end)
                    with ordinality as e (name, value, place)
                order by e.name collate "C", e.place desc
            ) as m
            union all
            select e.place::integer, case when e.place > 1 then ',' else '' end, e.value
            from json_array_elements(case when json_typeof(n.value) = 'array' then n.value end)
                with ordinality as e (value, place)
        ) as child (place, prefix, value)
    )
    select string_agg(piece.text, '' order by piece.path), max(cardinality(piece.path))
    into sorted, depth
    from (
        select n.path, n.prefix || case json_typeof(n.value)
            when 'object' then '{'
            when 'array' then '['
            when 'number' then onefold._number_text(n.value::text)
            when 'string' then to_json(n.value #>> '{}')::text
            else n.value::text
        end
        from node as n
        union all
        select n.path || 2147483647, case json_typeof(n.value) when 'object' then '}' else ']' end
        from node as n
        where json_typeof(n.value) in ('object', 'array')
    ) as piece (path, text);
    if depth > 256 then
        perform onefold._reject('payload', 'must not nest deeper than 256 levels');
    end if;
    return sorted;
end
$function$;

-- PostgreSQL's jsonb rejects what is not JSON, and text that it cannot store: NUL and lone surrogates.
create function onefold._check_payload(payload text) returns void
language plpgsql
as $function$
declare
    size integer := octet_length(convert_to(payload, 'UTF8'));
begin
    if payload is null then
        perform onefold._reject('payload', 'must not be null; the null of JSON is the text ''null''');
    elsif size > 1048576 then
        perform onefold._reject('payload', format('must have at most 1048576 bytes, got %s', size));
    end if;
    perform payload::jsonb;
    -- It rejects numbers that are too large, and values that nest too deeply.
    if
        payload ~ '[0-9]{200}|[0-9][eE][+]?[0-9]{3}'
        or length(payload) - length(translate(payload, '[{', '')) > 256
    then
        perform onefold._sorted_payload(payload);
    end if;
end
$function$;

-- SHA-256 of the parts, each with its length, so that no other parts have the same digest.
create function onefold._digest(variadic parts text[]) returns bytea
language sql
immutable
as $function$
    select sha256(string_agg(
        convert_to(octet_length(part.bytes) || ':', 'UTF8') || part.bytes, ''::bytea order by part.place
    ))
    from (
        select convert_to(p.part, 'UTF8'), p.place
        from unnest(parts) with ordinality as p (part, place)
    ) as part (bytes, place)
$function$;

create function onefold._hash12(variadic parts text[]) returns integer
language sql
immutable
as $function$
    select (get_byte(digest, 0) * 256 + get_byte(digest, 1)) & 4095
    from onefold._digest(variadic parts) as digest
$function$;

create function onefold._fingerprint(variadic parts text[]) returns text
language sql
immutable
as $function$
    select left(encode(onefold._digest(variadic parts), 'hex'), 32)
$function$;

-- A UUIDv7: milliseconds, the hash that decides the shard, the fraction of the millisecond, and random bits.
-- Without a key, the hash is the same for one connection in one millisecond, so that its ids are in order.
create function onefold._new_id(hash integer) returns uuid
language sql
volatile
as $function$
    select (
        left(clock.digits, 8) || '-' || right(clock.digits, 4) || '-7'
        || lpad(to_hex(coalesce(
            hash, onefold._hash12(clock.digits, pg_backend_pid()::text)
        )), 3, '0') || '-'
        || left(clock.counter, 4) || '-' || right(clock.counter, 1)
        || right(gen_random_uuid()::text, 11)
    )::uuid
    from (
        select
            lpad(to_hex(now.micros / 1000), 12, '0'),
            to_hex(524288 + now.micros % 1000 * 262 + floor(random() * 262)::bigint)
        from (select (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now (micros)
    ) as clock (digits, counter)
$function$;

create function onefold._shard_of(id uuid, shards integer) returns smallint
language sql
immutable
as $function$
    select (('x' || substr(id::text, 16, 3))::bit(12)::integer % shards)::smallint
$function$;

-- Where a job is, for users.
create function onefold._state_name(job onefold.job, now bigint) returns text
language sql
immutable
as $function$
    select case
        when job.state = 0 and job.attempt > 0 then 'retrying'
        when job.state = 0 and job.run_at > now then 'scheduled'
        when job.state = 1 and job.awaiting = job.fence then 'awaiting'
        else (array['ready', 'running', 'completed', 'dead', 'cancelled'])[job.state + 1]
    end
$function$;

-- The column `options` of a job, as JSON text; null if the job has none.
create function onefold._options(tags text[], metadata jsonb, idempotency_key text) returns text
language plpgsql
as $function$
declare
    size integer := octet_length(convert_to(metadata::text, 'UTF8'));
    options jsonb;
begin
    if cardinality(tags) > 50 then
        perform onefold._reject('tags', format('must be at most 50, got %s', cardinality(tags)));
    elsif jsonb_typeof(metadata) <> 'object' then
        perform onefold._reject(
            'metadata', format('must be a JSON object, got %s', left(metadata::text, 100)));
    elsif size > 65536 then
        perform onefold._reject('metadata', format('must have at most 65536 bytes, got %s', size));
    end if;
    perform onefold._check_key(tag, 'tags') from unnest(tags) as tag;
    options := jsonb_build_object(
        'tags', case when cardinality(tags) > 0 then array(select unnest(tags)) end,
        'metadata', metadata,
        'published', idempotency_key            -- only shown; the claim is what counts
    );
    -- Not jsonb_strip_nulls, which would also strip the members of the metadata.
    options := options - array(select o.key from jsonb_each(options) as o where o.value = 'null');
    return nullif(options, '{}')::text;
end
$function$;

-- Store a job, unless another job holds its key. Workers are notified at the commit.
create function onefold._insert_job(job onefold.job) returns boolean
language plpgsql
as $function$
begin
    insert into onefold.job (
        shard, id, tenant, queue, kind, priority, run_at, max_attempts, payload, fingerprint,
        unique_kind, unique_key, unique_states, unique_until, created_at, expires_at, options,
        group_key
    )
    values (
        job.shard, job.id, job.tenant, job.queue, job.kind, job.priority, job.run_at,
        job.max_attempts, job.payload, job.fingerprint, job.unique_kind, job.unique_key,
        job.unique_states, job.unique_until, job.created_at, job.expires_at, job.options,
        job.group_key
    )
    on conflict do nothing;
    if not found then
        return false;
    end if;
    perform pg_notify(left('onefold.job', 63), job.queue);
    return true;
end
$function$;

create function onefold._give_up(key text) returns void
language plpgsql
as $function$
begin
    raise exception using
        errcode = 'lock_not_available',
        message = format('the key %L changed hands 8 times during this call', key),
        hint = 'Roll the transaction back and run it again.';
end
$function$;

-- Store the job, or find the job that holds its key. The unique index decides. A holder that has expired,
-- or whose window is over, loses its key, and the insert is repeated.
create function onefold._insert_or_find(
    job onefold.job, now bigint,
    out id uuid, out state text, out mismatch boolean, out is_new boolean
)
language plpgsql
as $function$
declare
    holder onefold.job;
    requested jsonb;
    successor onefold.job;
begin
    for attempt in 1..8 loop
        id := job.id;
        state := onefold._state_name(job, now);
        mismatch := false;
        is_new := onefold._insert_job(job);
        if is_new then
            return;
        end if;
        -- Not with _state_name: on a node of Citus, a row has the type of its shard.
        select * into holder
        from onefold.job as j
        where
            j.shard = job.shard
            and j.tenant = job.tenant
            and j.unique_kind = job.unique_kind
            and j.unique_key = job.unique_key
            and j.unique_key is not null
            and not j.yielded
            and (j.unique_until is not null or (j.unique_states >> j.state) & 1 = 1);
        continue when not found;
        if holder.state = 0 and holder.expires_at <= now then
            update onefold.job as j
            set
                state = 3,
                vanished = 0,
                not_before = null,
                reason = 'expired',
                ended_at = now,
                keep_until = now
                    + coalesce((j.options::jsonb #>> '{keep,dead}')::bigint, 2592000000000),
                -- The successor gets the key.
                yielded = j.yielded or j.next is not null
            where
                j.shard = job.shard and j.id = holder.id and j.state = 0 and j.expires_at <= now
            returning j.next::jsonb into requested;
            if requested is not null then
                successor := jsonb_populate_record(null::onefold.job, requested);
                successor.created_at := now;
                successor.run_at := coalesce(
                    successor.run_at, now + (requested ->> 'delay')::bigint);
                successor.unique_until := greatest(
                    successor.unique_until, now + (requested ->> 'unique_for')::bigint);
                perform onefold._insert_job(successor);
                update onefold.job as j
                set next = null
                where j.shard = job.shard and j.id = holder.id;
            end if;
        elsif
            holder.unique_until <= now and (holder.unique_states >> holder.state) & 1 = 0
        then
            -- A successor is older than this request, and is dropped.
            update onefold.job as j
            set yielded = true, next = null
            where
                j.shard = job.shard
                and j.id = holder.id
                and not j.yielded
                and j.unique_until <= now
                and (j.unique_states >> j.state) & 1 = 0;
        else
            id := holder.id;
            state := onefold._state_name(holder, now);
            mismatch := holder.fingerprint is distinct from job.fingerprint;
            return;
        end if;
    end loop;
    perform onefold._give_up(job.unique_key);
end
$function$;

-- Store a publish key, or find the job that was published with it. A key that was released, or that has
-- expired, is taken over; a key does not expire before its job has ended.
create function onefold._claim_publish_key(
    claim onefold.claim, now bigint, shards integer,
    out id uuid, out state text, out mismatch boolean, out is_new boolean
)
language plpgsql
as $function$
declare
    known onefold.claim;
    published onefold.job;
begin
    for attempt in 1..8 loop
        insert into onefold.claim (
            shard, tenant, surface, scope, key, id, owner, state, takeover, fence, created_at,
            settled_at, expires_at, keep, fingerprint, result
        )
        values (
            claim.shard, claim.tenant, claim.surface, claim.scope, claim.key, claim.id, claim.id, 1, 0,
            (extract(epoch from clock_timestamp()) * 1000000)::bigint, now, now, now + claim.keep,
            claim.keep, claim.fingerprint, claim.id::text
        )
        on conflict do nothing;
        is_new := found;
        if is_new then
            return;
        end if;
        select * into known
        from onefold.claim as c
        where
            c.shard = claim.shard
            and c.tenant = claim.tenant
            and c.surface = claim.surface
            and c.scope = claim.scope
            and c.key = claim.key;
        continue when not found;
        id := known.result::uuid;
        mismatch := known.fingerprint is distinct from claim.fingerprint;
        select * into published
        from onefold.job as j
        where j.shard = onefold._shard_of(known.result::uuid, shards) and j.id = known.result::uuid;
        state := onefold._state_name(published, now);
        if
            id is not null
            and known.state <> 2
            and not (
                coalesce(state in ('completed', 'dead', 'cancelled'), true)
                and coalesce(known.expires_at <= now, false)
            )
        then
            return;
        end if;
        update onefold.claim as c
        set
            id = claim.id,
            owner = claim.id,
            state = 1,
            takeover = 0,
            fence = greatest(
                c.fence + 1, (extract(epoch from statement_timestamp()) * 1000000)::bigint),
            created_at = now,
            lease_until = null,
            settled_at = now,
            expires_at = now + claim.keep,
            keep = claim.keep,
            fingerprint = claim.fingerprint,
            result = claim.id::text
        where
            c.shard = claim.shard
            and c.tenant = claim.tenant
            and c.surface = claim.surface
            and c.scope = claim.scope
            and c.key = claim.key
            and c.fence = known.fence
            and c.state = known.state
            and c.owner = known.owner;
        is_new := found;
        if is_new then
            return;
        end if;
    end loop;
    perform onefold._give_up(claim.key);
end
$function$;

create function onefold.onefold_enqueue(
    kind text,
    payload text default '{}',
    queue text default 'default',
    priority integer default 0,
    max_attempts integer default 8,
    run_at timestamptz default null,
    unique_key text default null,
    group_key text default null,
    tags text[] default null,
    metadata jsonb default null,
    delay interval default null,
    unique_while text default null,             -- active, unless unique_for is given
    unique_for interval default null,
    across_kinds boolean default false,
    idempotency_key text default null,
    idempotency_for interval default '24 hours',
    tenant text default '',
    expires_at timestamptz default null,
    on_duplicate text default 'keep',
    on_mismatch text default 'flag',
    request_id text default null,
    clock timestamptz default null              -- for tests: the current time
)
returns table (id uuid, duplicate boolean, inserted boolean, state text, mismatch boolean)
language plpgsql
set search_path = pg_catalog, pg_temp
as $function$
declare
    shards integer := (
        select (m.value::jsonb ->> 'shards')::integer from onefold.meta as m where m.name = 'identity'
    );
    now bigint := coalesce(
        onefold._to_micros(clock, 'clock'), (extract(epoch from statement_timestamp()) * 1000000)::bigint);
    job onefold.job;
    claim onefold.claim;
    known record;
    sorted text;
    hash integer;
    key text := unique_key;
    is_published boolean := false;
begin
    perform onefold._check_name(kind, 'kind');
    -- The name of a queue of the server begins with its tenant.
    perform onefold._check_name(
        regexp_replace(queue, $$^\{[a-z0-9][a-z0-9._-]{0,63}\}$$, ''), 'queue');
    perform onefold._check_payload(payload);
    perform onefold._check_key(tenant, 'tenant', 0);
    perform onefold._check_key(unique_key, 'unique_key') where unique_key is not null;
    perform onefold._check_key(idempotency_key, 'idempotency_key') where idempotency_key is not null;
    perform onefold._check_key(group_key, 'group_key') where group_key is not null;
    perform onefold._check_key(request_id, 'request_id', 0) where request_id is not null;
    if delay is not null and run_at is not null then
        perform onefold._reject('delay', 'cannot be given together with run_at');
    elsif across_kinds is null then
        perform onefold._reject('across_kinds', 'must be true or false, got null');
    elsif idempotency_key is not null and idempotency_for is null then
        perform onefold._reject('idempotency_for', 'must not be null');
    elsif on_duplicate is null or on_duplicate not in ('keep', 'raise') then
        perform onefold._reject(
            'on_duplicate', format('must be keep or raise in SQL, got %L', on_duplicate));
    elsif on_mismatch is null or on_mismatch not in ('flag', 'raise') then
        perform onefold._reject('on_mismatch', format('must be flag or raise, got %L', on_mismatch));
    elsif unique_key is null then
        perform onefold._reject(option.name, 'needs a unique_key')
        from (values
            ('unique_while', unique_while is not null),
            ('unique_for', unique_for is not null),
            ('across_kinds', across_kinds)
        ) as option (name, is_given)
        where option.is_given;
    elsif unique_while not in ('queued', 'active', 'exists') then
        perform onefold._reject(
            'unique_while', format('must be queued, active or exists, got %L', unique_while));
    end if;

    job.tenant := tenant;
    job.queue := queue;
    job.kind := kind;
    job.priority := onefold._check_number(priority, 'priority', -32768, 32767);
    job.max_attempts := onefold._check_number(max_attempts, 'max_attempts', 1, 100);
    job.created_at := now;
    job.run_at := coalesce(
        onefold._to_micros(run_at, 'run_at'), now + onefold._to_micros(delay, 'delay', 0), now);
    job.expires_at := onefold._to_micros(expires_at, 'expires_at');
    job.payload := payload;
    job.options := onefold._options(tags, metadata, idempotency_key);
    job.group_key := group_key;
    job.unique_states := 0;
    job.state := 0;
    job.attempt := 0;
    if unique_key is not null or idempotency_key is not null then
        sorted := onefold._sorted_payload(payload);
    end if;
    if unique_key is not null then
        job.unique_key := unique_key;
        job.unique_kind := case when across_kinds then '' else kind end;
        job.unique_until := now + onefold._to_micros(unique_for, 'unique_for', 1);
        job.unique_states := case
            when unique_while = 'queued' then 1
            when unique_while = 'active' then 3
            when unique_while = 'exists' then 31
            when unique_for is null then 3
            else 0                              -- a window alone holds the key by time only
        end;
        job.fingerprint := onefold._fingerprint(kind, sorted);
        hash := onefold._hash12(tenant, job.unique_kind, unique_key);
    end if;
    if idempotency_key is not null then
        claim.shard := onefold._hash12(tenant, 'publish', queue, idempotency_key) % shards;
        claim.tenant := tenant;
        claim.surface := 'publish';
        claim.scope := queue;
        claim.key := idempotency_key;
        claim.keep := onefold._to_micros(idempotency_for, 'idempotency_for', 1);
        claim.fingerprint := onefold._fingerprint(kind, queue, sorted);
        hash := coalesce(hash, onefold._hash12(tenant, 'publish', queue, idempotency_key));
    end if;
    job.id := onefold._new_id(hash);
    job.shard := onefold._shard_of(job.id, shards);
    claim.id := job.id;

    if idempotency_key is not null then
        known := onefold._claim_publish_key(claim, now, shards);
        is_published := not known.is_new;
    end if;
    if is_published then
        key := idempotency_key;
    else
        known := onefold._insert_or_find(job, now);
        if not known.is_new and on_duplicate = 'raise' then
            raise exception using
                errcode = 'unique_violation',
                message = format(
                    'the key %L is held by job %s (%s).', key, known.id, known.state),
                detail = json_build_object(
                    'key', key, 'holder_id', known.id, 'state', known.state)::text,
                hint = $$Use on_duplicate => 'keep' to receive the id of that job instead.$$,
                constraint = 'job_unique';
        elsif not known.is_new and idempotency_key is not null then
            -- From now on the publish key returns the job that holds the unique key.
            update onefold.claim as c
            set result = known.id::text
            where
                c.shard = claim.shard
                and c.tenant = claim.tenant
                and c.surface = claim.surface
                and c.scope = claim.scope
                and c.key = claim.key
                and c.owner = claim.id;
        end if;
    end if;
    if known.mismatch and on_mismatch = 'raise' then
        raise exception using
            errcode = 'OF422',
            message = format(
                'the key %L was used before with a different request. Use a new key for a new request.',
                key),
            detail = json_build_object('key', key, 'holder_id', known.id)::text;
    end if;

    id := known.id;
    duplicate := not known.is_new;
    inserted := known.is_new;
    state := known.state;
    mismatch := known.mismatch;
    -- Not for a deleted job, of which only the publish key is left.
    if duplicate and state is not null then
        insert into onefold.duplicate (shard, job_id, at, request_id)
        values (onefold._shard_of(id, shards), id, now, request_id);
    end if;
    return next;
end
$function$;

-- The same for a payload of type json or jsonb; a value of another type is converted with to_json.
create function onefold.onefold_enqueue(
    kind text,
    payload anyelement,
    queue text default 'default',
    priority integer default 0,
    max_attempts integer default 8,
    run_at timestamptz default null,
    unique_key text default null,
    group_key text default null,
    tags text[] default null,
    metadata jsonb default null,
    delay interval default null,
    unique_while text default null,
    unique_for interval default null,
    across_kinds boolean default false,
    idempotency_key text default null,
    idempotency_for interval default '24 hours',
    tenant text default '',
    expires_at timestamptz default null,
    on_duplicate text default 'keep',
    on_mismatch text default 'flag',
    request_id text default null,
    clock timestamptz default null
)
returns table (id uuid, duplicate boolean, inserted boolean, state text, mismatch boolean)
language sql
as $function$
    select * from onefold.onefold_enqueue(
        kind, pg_catalog.to_json(payload)::pg_catalog.text, queue, priority, max_attempts, run_at,
        unique_key, group_key, tags, metadata, delay, unique_while, unique_for, across_kinds,
        idempotency_key, idempotency_for, tenant, expires_at, on_duplicate, on_mismatch, request_id,
        clock
    )
$function$;
