-- Enqueue from SQL changes holders too: `on_duplicate` may be replace or rerun, with the rules of the
-- operations. The answer has one more column, so the functions are made anew.

-- How often a job was deferred since it was enqueued or replayed.
alter table onefold.job add column defers integer not null default 0;

-- The take that leased it. An id of the client's: what a take leased whose answer was lost is found by it.
alter table onefold.job add column take_id uuid;

drop function onefold.onefold_enqueue(
    text, text, text, integer, integer, timestamptz, text, text, text[], jsonb, interval, text,
    interval, boolean, text, interval, text, timestamptz, text, text, text, timestamptz
);
drop function onefold.onefold_enqueue(
    text, json, text, integer, integer, timestamptz, text, text, text[], jsonb, interval, text,
    interval, boolean, text, interval, text, timestamptz, text, text, text, timestamptz
);
drop function onefold.onefold_enqueue(
    text, jsonb, text, integer, integer, timestamptz, text, text, text[], jsonb, interval, text,
    interval, boolean, text, interval, text, timestamptz, text, text, text, timestamptz
);
drop function onefold.onefold_enqueue_many(jsonb, text, text, text, timestamptz);
drop function onefold._enqueue(onefold.prepared[], text[], text, text, bigint, integer, boolean);
drop function onefold._check_policy(text, text);

-- Names are refused as the library refuses them: also those that are lost on their way in a URL.
create or replace function onefold._check_name(value text, field text) returns void
language plpgsql
as $function$
declare
    found_character text := substring(value from $$[\u0001-\u001f\u007f-\u009f,*?\[\]{}\\]$$);
begin
    if value is null then
        perform onefold._refuse(field, 'must not be null');
    elsif char_length(value) not between 1 and 200 then
        perform onefold._refuse(
            field, format('must have 1 to 200 characters, got %s', char_length(value)));
    elsif found_character is not null then
        perform onefold._refuse(field, format('must not contain %L, got %L', found_character, value));
    elsif value in ('.', '..') then
        perform onefold._refuse(field, format('must not be %L, which is lost on its way in a URL', value));
    end if;
end
$function$;

create function onefold._check_policy(on_duplicate text, max_wait interval, on_mismatch text)
returns void
language plpgsql
as $function$
begin
    if on_duplicate is null or on_duplicate not in ('keep', 'raise', 'replace', 'rerun') then
        perform onefold._refuse(
            'on_duplicate', format('must be keep, raise, replace or rerun, got %L', on_duplicate));
    elsif on_mismatch is null or on_mismatch not in ('flag', 'raise') then
        perform onefold._refuse('on_mismatch', format('must be flag or raise, got %L', on_mismatch));
    elsif on_mismatch = 'raise' and on_duplicate in ('replace', 'rerun') then
        perform onefold._refuse('on_mismatch', format(
            '"raise" contradicts on_duplicate %L: it wants the change', on_duplicate));
    elsif max_wait is not null and on_duplicate <> 'replace' then
        perform onefold._refuse('max_wait', $$needs on_duplicate 'replace'$$);
    end if;
end
$function$;

-- Of a successor: how long the key was promised by the job that it follows.
alter type onefold.prepared add attribute unique_until bigint;

-- Store a job, unless its key is held; wakes workers at the commit.
create or replace function onefold._insert_prepared(asked onefold.prepared, now bigint) returns boolean
language plpgsql
as $function$
begin
    insert into onefold.job (
        shard, id, tenant, queue, kind, priority, run_at, max_attempts, payload, fingerprint,
        unique_kind, unique_key, unique_states, unique_until, created_at, expires_at, options,
        group_key
    )
    values (
        asked.shard, asked.id, asked.tenant, asked.queue, asked.kind, asked.priority,
        coalesce(asked.run_at, now + asked.delay), asked.max_attempts, asked.payload,
        asked.fingerprint, asked.unique_kind, asked.unique_key, asked.unique_states,
        greatest(asked.unique_until, now + asked.unique_for), now, asked.expires_at, asked.options,
        asked.group_key
    )
    on conflict do nothing;
    if not found then
        return false;
    end if;
    perform pg_notify(left('onefold.job', 63), asked.queue);
    return true;
end
$function$;

-- The newer request under the older one's id, scope and queue.
create function onefold._with_content(older onefold.prepared, newer onefold.prepared)
returns onefold.prepared
language plpgsql
immutable
as $function$
begin
    older.kind := newer.kind;
    older.payload := newer.payload;
    older.fingerprint := newer.fingerprint;
    older.priority := newer.priority;
    older.run_at := newer.run_at;
    older.delay := newer.delay;
    return older;
end
$function$;

-- Hand a request to the holder of its key: a queued one takes it; a running one, at a rerun, gets the newest
-- of the call as its successor. A holder that has ended meanwhile has given its key up, and that is asked for
-- again.
create function onefold._change_holder(
    asked onefold.prepared, newest onefold.prepared, is_rerun boolean, max_wait bigint, now bigint,
    inout id uuid, inout fingerprint text,
    out state smallint, out is_new boolean, out replaced boolean
)
language plpgsql
as $function$
declare
    wanted bigint := coalesce(asked.run_at, now + asked.delay);
    holder record;
    stand record;
begin
    is_new := false;
    replaced := false;
    for turn in 1..8 loop
        select
            j.state, j.run_at, j.not_before, j.created_at, j.unique_states, j.unique_until,
            not j.yielded
                and (j.unique_until is not null or (j.unique_states >> j.state) & 1 = 1) as holds
        into holder
        from onefold.job as j
        where j.shard = asked.shard and j.id = _change_holder.id
        for update of j;
        exit when holder.holds;
        stand := onefold._settle(asked, now);
        id := stand.id;
        fingerprint := stand.fingerprint;
        state := stand.state;
        is_new := stand.is_new;
        if is_new then
            return;
        end if;
    end loop;
    if holder.holds is not true then
        perform onefold._never_settled(asked.unique_key);
    end if;
    state := holder.state;
    if state = 0 then
        -- A rerun is a trigger, not a debounce: it never postpones what is waiting already.
        if is_rerun then
            wanted := least(wanted, holder.run_at);
        end if;
        -- A retrying holder starts a new generation, and its backoff is not shortened. A successor that
        -- waited is older than this request, and is dropped.
        update onefold.job as j
        set
            kind = asked.kind,
            payload = asked.payload,
            fingerprint = asked.fingerprint,
            priority = asked.priority,
            run_at = greatest(least(wanted, holder.created_at + max_wait), holder.not_before),
            generation = j.generation + case when j.attempt > 0 then 1 else 0 end,
            attempt = 0,
            vanished = 0,
            awaiting = null,
            next = null
        where j.shard = asked.shard and j.id = _change_holder.id;
        replaced := true;
    elsif state = 1 and is_rerun then
        -- The whole request, its delay counted from the trigger and not from the holder's end. It keeps what
        -- the holder has promised about its key: the later end and the wider scope are those of either.
        newest.run_at := coalesce(newest.run_at, now + newest.delay);
        newest.unique_states := newest.unique_states | holder.unique_states;
        newest.unique_until := holder.unique_until;
        update onefold.job as j
        set next = (
            to_jsonb(newest)
            - array['publish_shard', 'publish_key', 'publish_fingerprint', 'publish_keep']
        )::text
        where j.shard = asked.shard and j.id = _change_holder.id;
    end if;
end
$function$;

-- Store the jobs that are new, and answer for each item, in order. Publish keys first, then unique keys, then
-- the holders that are to be changed, each in the one order in which everybody asks for them: so that two
-- batches never wait for each other. But for a holder that has ended by then: its key is asked for out of
-- order, in a transaction that is the caller's and cannot begin anew.
create function onefold._enqueue(
    asked onefold.prepared[], request_ids text[], on_duplicate text, max_wait bigint,
    on_mismatch text, now bigint, shards integer, is_batch boolean
)
returns table (
    id uuid, duplicate boolean, inserted boolean, state text, mismatch boolean, replaced boolean
)
language plpgsql
as $function$
declare
    words text[] := array['queued', 'running', 'completed', 'dead', 'cancelled'];
    takes_newest boolean := on_duplicate in ('replace', 'rerun');
    ids uuid[] := array(select a.id from unnest(asked) with ordinality as a order by a.ordinality);
    leaders integer[] := array_fill(null::integer, array[cardinality(asked)]);
    settled boolean[] := array_fill(false, array[cardinality(asked)]);
    lasts integer[] := array_fill(null::integer, array[cardinality(asked)]);
    answers uuid[] := array_fill(null::uuid, array[cardinality(asked)]);
    states text[] := array_fill(null::text, array[cardinality(asked)]);
    fingerprints text[] := array_fill(null::text, array[cardinality(asked)]);
    changed boolean[] := array_fill(false, array[cardinality(asked)]);
    mismatches boolean[] := array_fill(false, array[cardinality(asked)]);
    published record;
    stand record;
    one onefold.prepared;
    newest onefold.prepared;
    place integer;
    leader integer;
    final integer;
    label integer;
begin
    for place in
        select a.ordinality
        from unnest(asked) with ordinality as a
        where a.publish_key is not null
        order by
            a.publish_shard, a.tenant collate "C", a.queue collate "C", a.publish_key collate "C",
            a.ordinality
    loop
        label := case when is_batch then place - 1 end;
        one := asked[place];
        published := onefold._claim_publish_key(one, now, shards);
        if not published.is_new then
            mismatches[place] := published.mismatch;
            leaders[place] := array_position(ids, published.owner);
            answers[place] := published.job_id;
            states[place] := words[published.state + 1];
            if published.mismatch and on_mismatch = 'raise' then
                perform onefold._refuse_reuse(one.publish_key, published.job_id, label);
            end if;
        end if;
    end loop;

    for place, leader, final in
        select a.ordinality, min(a.ordinality) over same_key, max(a.ordinality) over same_key
        from unnest(asked) with ordinality as a
        where answers[a.ordinality] is null
        window same_key as (
            partition by
                a.shard, a.tenant, a.unique_kind, a.unique_key,
                case when a.unique_key is null then a.ordinality end
        )
        order by
            a.shard, a.tenant collate "C", a.unique_kind collate "C" nulls first,
            a.unique_key collate "C" nulls first, a.ordinality
    loop
        label := case when is_batch then place - 1 end;
        settled[place] := true;
        if takes_newest and leader < place then
            -- One of them is stored, with what the last of them asks for.
            leaders[place] := leader;
            continue;
        end if;
        one := asked[place];
        if takes_newest and final > place then
            stand := onefold._settle(onefold._with_content(one, asked[final]), now);
        else
            stand := onefold._settle(one, now);
        end if;
        answers[place] := stand.id;
        states[place] := words[stand.state + 1];
        changed[place] := stand.is_new;
        continue when stand.is_new;
        if takes_newest then
            fingerprints[place] := stand.fingerprint;
            lasts[place] := final;
            continue;
        end if;
        mismatches[place] := stand.fingerprint is distinct from one.fingerprint;
        if on_duplicate = 'raise' then
            perform onefold._refuse_duplicate(one.unique_key, stand.id, states[place], label);
        elsif mismatches[place] and on_mismatch = 'raise' then
            perform onefold._refuse_reuse(one.unique_key, stand.id, label);
        end if;
    end loop;

    for place in
        select l.place
        from unnest(lasts) with ordinality as l (last, place)
        where l.last is not null
        order by onefold._shard_of(answers[l.place], shards), answers[l.place]
    loop
        newest := asked[lasts[place]];
        stand := onefold._change_holder(
            onefold._with_content(asked[place], newest), newest, on_duplicate = 'rerun', max_wait, now,
            answers[place], fingerprints[place]);
        answers[place] := stand.id;
        states[place] := words[stand.state + 1];
        fingerprints[place] := stand.fingerprint;
        changed[place] := stand.is_new or stand.replaced;
    end loop;

    for place in 1..cardinality(asked) loop
        -- The same publish key came earlier in this call, or the same unique key.
        leader := coalesce(leaders[place], place);
        leader := coalesce(leaders[leader], leader);
        id := answers[leader];
        state := states[leader];
        duplicate := id <> ids[place];
        inserted := not duplicate;
        replaced := duplicate and settled[place] and takes_newest and changed[leader];
        mismatch := mismatches[place];
        if duplicate and settled[place] then
            one := asked[place];
            -- A rerun's request is accepted also where it waits behind a running holder.
            mismatch := mismatch or takes_newest
                and not replaced
                and not (on_duplicate = 'rerun' and state = 'running')
                and fingerprints[leader] is distinct from one.fingerprint;
            if one.publish_key is not null then
                -- The publish key stands for the holder.
                update onefold.claim as c
                set result = _enqueue.id::text
                where
                    c.shard = one.publish_shard
                    and c.tenant = one.tenant
                    and c.surface = 'publish'
                    and c.scope = one.queue
                    and c.key = one.publish_key
                    and c.owner = one.id;
            end if;
        end if;
        -- A job that is gone, and that only a publish key remembers, has nobody to tidy its notes.
        if duplicate and state is not null then
            insert into onefold.duplicate (shard, job_id, at, request_id)
            values (onefold._shard_of(id, shards), id, now, request_ids[place]);
        end if;
        return next;
    end loop;
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
    max_wait interval default null,
    on_mismatch text default 'flag',
    request_id text default null,
    clock timestamptz default null              -- for tests: what the time is taken to be
)
returns table (
    id uuid, duplicate boolean, inserted boolean, state text, mismatch boolean, replaced boolean
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $function$
declare
    shards integer := onefold._shards();
begin
    perform onefold._check_policy(on_duplicate, max_wait, on_mismatch);
    perform onefold._check_key(request_id, 'request_id', 0) where request_id is not null;
    return query select * from onefold._enqueue(
        array[onefold._prepare(
            kind, payload, queue, priority, max_attempts, run_at, unique_key, group_key, tags, metadata,
            delay, unique_while, unique_for, across_kinds, idempotency_key, idempotency_for, tenant,
            expires_at, shards
        )],
        array[request_id], on_duplicate, onefold._span(max_wait, 'max_wait'), on_mismatch,
        onefold._time(clock), shards, false
    );
end
$function$;

-- The same for payloads of PostgreSQL's own types.
create function onefold.onefold_enqueue(
    kind text,
    payload json,
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
    max_wait interval default null,
    on_mismatch text default 'flag',
    request_id text default null,
    clock timestamptz default null
)
returns table (
    id uuid, duplicate boolean, inserted boolean, state text, mismatch boolean, replaced boolean
)
language sql
as $function$
    select * from onefold.onefold_enqueue(
        kind, payload::text, queue, priority, max_attempts, run_at, unique_key, group_key, tags,
        metadata, delay, unique_while, unique_for, across_kinds, idempotency_key, idempotency_for,
        tenant, expires_at, on_duplicate, max_wait, on_mismatch, request_id, clock
    )
$function$;

create function onefold.onefold_enqueue(
    kind text,
    payload jsonb,
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
    max_wait interval default null,
    on_mismatch text default 'flag',
    request_id text default null,
    clock timestamptz default null
)
returns table (
    id uuid, duplicate boolean, inserted boolean, state text, mismatch boolean, replaced boolean
)
language sql
as $function$
    select * from onefold.onefold_enqueue(
        kind, payload::text, queue, priority, max_attempts, run_at, unique_key, group_key, tags,
        metadata, delay, unique_while, unique_for, across_kinds, idempotency_key, idempotency_for,
        tenant, expires_at, on_duplicate, max_wait, on_mismatch, request_id, clock
    )
$function$;

-- Many at once, all or nothing: a JSON array of objects whose members are named like the arguments of
-- `onefold_enqueue`. Items are counted from 0.
create function onefold.onefold_enqueue_many(
    jobs jsonb,
    tenant text default '',
    on_duplicate text default 'keep',
    max_wait interval default null,
    on_mismatch text default 'flag',
    clock timestamptz default null              -- for tests: what the time is taken to be
)
returns table (
    item integer, id uuid, duplicate boolean, inserted boolean, state text, mismatch boolean,
    replaced boolean
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $function$
declare
    known text[] := array[
        'kind', 'payload', 'queue', 'priority', 'max_attempts', 'run_at', 'unique_key', 'group_key',
        'tags', 'metadata', 'delay', 'unique_while', 'unique_for', 'across_kinds', 'idempotency_key',
        'idempotency_for', 'expires_at', 'request_id'];
    shards integer := onefold._shards();
    asked onefold.prepared[] := array[]::onefold.prepared[];
    request_ids text[] := array[]::text[];
    job jsonb;
    told record;
    one onefold.prepared;
    named text;
    reason text;
begin
    perform onefold._check_policy(on_duplicate, max_wait, on_mismatch);
    if jobs is null or jsonb_typeof(jobs) <> 'array' then
        perform onefold._refuse('jobs', 'must be a JSON array of objects');
    elsif jsonb_array_length(jobs) > 10000 then
        perform onefold._refuse(
            'jobs', format('must be at most 10000, got %s', jsonb_array_length(jobs)));
    end if;
    begin
        for job in select j.value from jsonb_array_elements(jobs) as j loop
            if jsonb_typeof(job) <> 'object' then
                perform onefold._refuse('job', 'must be a JSON object');
            end if;
            select min(m.name) into named
            from jsonb_object_keys(job) as m (name)
            where m.name <> all (known);
            if named is not null then
                perform onefold._refuse(named, 'is no option of a job');
            end if;
            select * into told
            from jsonb_to_record(job) as r (
                kind text, queue text, priority integer, max_attempts integer, run_at timestamptz,
                unique_key text, group_key text, tags text[], delay interval, unique_while text,
                unique_for interval, across_kinds boolean, idempotency_key text,
                idempotency_for interval, expires_at timestamptz, request_id text
            );
            perform onefold._check_key(told.request_id, 'request_id', 0)
            where told.request_id is not null;
            one := onefold._prepare(
                told.kind, coalesce(job -> 'payload', '{}')::text, coalesce(told.queue, 'default'),
                coalesce(told.priority, 0), coalesce(told.max_attempts, 8), told.run_at,
                told.unique_key, told.group_key, told.tags, nullif(job -> 'metadata', 'null'),
                told.delay, told.unique_while, told.unique_for, coalesce(told.across_kinds, false),
                told.idempotency_key, coalesce(told.idempotency_for, '24 hours'), tenant,
                told.expires_at, shards);
            asked := asked || one;
            request_ids := request_ids || told.request_id;
        end loop;
    exception
        when data_exception then
            get stacked diagnostics named = column_name, reason = message_text;
            raise exception using
                errcode = sqlstate,
                message = format('item %s: %s', cardinality(asked), reason),
                column = named;
    end;
    return query
        select
            (e.ordinality - 1)::integer, e.id, e.duplicate, e.inserted, e.state, e.mismatch,
            e.replaced
        from onefold._enqueue(
            asked, request_ids, on_duplicate, onefold._span(max_wait, 'max_wait'), on_mismatch,
            onefold._time(clock), shards, true
        ) with ordinality as e
        order by e.ordinality;
end
$function$;
