-- Enqueue from SQL: `onefold_enqueue`, for any language and inside its own transaction. The rules are those
-- of the operations, and what is stored is what they would store: the tests compare the two.

-- What is stored for a new job, named as the members of a successor that waits in `job.next`; and its
-- publish key.
create type onefold.prepared as (
    id uuid,
    shard smallint,
    tenant text,
    queue text,
    kind text,
    priority smallint,
    run_at bigint,
    delay bigint,
    max_attempts smallint,
    payload text,
    fingerprint text,
    unique_kind text,
    unique_key text,
    unique_states smallint,
    unique_for bigint,
    expires_at bigint,
    options text,
    group_key text,
    publish_shard smallint,
    publish_key text,
    publish_fingerprint text,
    publish_keep bigint
);

-- --- what may be asked for ---------------------------------------------------------------------------

create function onefold._refuse(field text, reason text) returns void
language plpgsql
as $function$
begin
    raise exception using
        errcode = 'invalid_parameter_value', message = field || ' ' || reason, column = field;
end
$function$;

create function onefold._check_name(value text, field text) returns void
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
    end if;
end
$function$;

create function onefold._check_key(value text, field text, lowest integer default 1) returns void
language plpgsql
as $function$
declare
    size integer := octet_length(convert_to(value, 'UTF8'));
begin
    if value is null then
        perform onefold._refuse(field, 'must not be null');
    elsif size < lowest then
        perform onefold._refuse(field, 'must not be empty');
    elsif size > 512 then
        perform onefold._refuse(field, format('must have at most 512 bytes, got %s', size));
    end if;
end
$function$;

create function onefold._check_number(value integer, field text, lowest integer, highest integer)
returns smallint
language plpgsql
as $function$
begin
    if value is null or value not between lowest and highest then
        perform onefold._refuse(field, format(
            'must be a whole number from %s to %s, got %s', lowest, highest, coalesce(value::text, 'null')));
    end if;
    return value;
end
$function$;

create function onefold._to_micros(value timestamptz, field text) returns bigint
language plpgsql
as $function$
begin
    if value not between '0001-01-01 00:00:00+00' and '9999-12-31 23:59:59.999999+00' then
        perform onefold._refuse(field, format('must be in the years 1 to 9999 of UTC, got %s', value));
    end if;
    return extract(epoch from value) * 1000000;
end
$function$;

create function onefold._span(value interval, field text, lowest bigint default 0) returns bigint
language plpgsql
as $function$
declare
    micros numeric := extract(epoch from value) * 1000000;
begin
    if micros < lowest then
        perform onefold._refuse(field, format(
            'must not be %s, got %s',
            case when lowest = 0 then 'negative' else 'shorter than a microsecond' end, value));
    elsif micros > 6307200000000000 then
        perform onefold._refuse(field, format('must not be longer than 73000 days, got %s', value));
    end if;
    return micros;
end
$function$;

-- --- payloads ----------------------------------------------------------------------------------------

-- A number as msgspec spells it after reading it: integers by their digits, all others as the shortest
-- text that reads as the same float. PostgreSQL's shortest is never midway between two floats, where a
-- shorter one may be.
create function onefold._spelled_number(token text) returns text
language plpgsql
immutable
set extra_float_digits = 1
as $function$
declare
    sign text := case when left(token, 1) = '-' then '-' else '' end;
    parts text[];
    digits text;
    point integer;
    value float8;
    unit numeric;
    shorter numeric;
begin
    if token !~ '[.eE]' then
        return case when token = '-0' then '0' else token end;
    end if;
    parts := regexp_match(ltrim(token, '-'), '^([0-9]+)\.?([0-9]*)(?:[eE](.+))?$');
    digits := ltrim(parts[1] || parts[2], '0');
    if digits = '' then
        return sign || '0.0';
    end if;
    -- The decimal point stands after so many of the digits.
    unit := length(digits) - length(parts[2]) + coalesce(parts[3]::numeric, 0);
    if unit > 309 or unit = 309 and left(rpad(digits, 19, '0'), 19) >= '1797693134862315808' then
        perform onefold._refuse('payload', 'holds a number that no float can hold');
    elsif unit < -323 or unit = -323 and left(rpad(digits, 19, '0'), 19) <= '2470328229206232720' then
        return sign || '0.0';
    end if;
    value := ltrim(token, '-')::float8;

    parts := regexp_match(value::text, '^([0-9]+)\.?([0-9]*)(?:e(.+))?$');
    digits := ltrim(parts[1] || parts[2], '0');
    point := length(digits) - length(parts[2]) + coalesce(parts[3]::integer, 0);
    digits := rtrim(digits, '0');
    -- Only whole numbers of about this size can be midway and short.
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

-- The payload as fingerprints have it: no white space, members in the order of their bytes, of members
-- with one name the last. Every value is a piece of text at a path, and so is every closing bracket.
create function onefold._sorted_payload(payload text) returns text
language plpgsql
immutable
as $function$
declare
    -- Backslashes that stand for themselves are out of the way: no text has this character unescaped.
    bare text := replace(payload, $$\\$$, chr(1));
    has_nul boolean := strpos(bare, $$\u0000$$) > 0;
    spelled text := payload;
begin
    if has_nul then
        -- No text of PostgreSQL has NUL. Two characters stand for it, in the same order.
        bare := replace(replace(bare, $$\u0001$$, $$\u0001\u0002$$), $$\u0000$$, $$\u0001\u0001$$);
        spelled := replace(bare, chr(1), $$\\$$);
    end if;
    with recursive node (path, prefix, value) as (
        select array[]::integer[], '', btrim(spelled, ' ' || chr(9) || chr(10) || chr(13))::json
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
    select string_agg(piece.text, '' order by piece.path)
    into spelled
    from (
        select n.path, n.prefix || case json_typeof(n.value)
            when 'object' then '{'
            when 'array' then '['
            when 'number' then onefold._spelled_number(n.value::text)
            when 'string' then to_json(n.value #>> '{}')::text
            else n.value::text
        end
        from node as n
        union all
        select n.path || 2147483647, case json_typeof(n.value) when 'object' then '}' else ']' end
        from node as n
        where json_typeof(n.value) in ('object', 'array')
    ) as piece (path, text);
    if has_nul then
        bare := replace(spelled, $$\\$$, chr(1));
        bare := replace(replace(bare, $$\u0001\u0001$$, $$\u0000$$), $$\u0001\u0002$$, $$\u0001$$);
        spelled := replace(bare, chr(1), $$\\$$);
    end if;
    return spelled;
end
$function$;

create function onefold._check_payload(payload text) returns void
language plpgsql
as $function$
declare
    bare text := replace(payload, $$\\$$, chr(1));
    brackets text;
begin
    if payload is null then
        perform onefold._refuse('payload', 'must not be null; the null of JSON is the text ''null''');
    elsif octet_length(convert_to(payload, 'UTF8')) > 1048576 then
        perform onefold._refuse('payload', format(
            'must have at most 1048576 bytes, got %s', octet_length(convert_to(payload, 'UTF8'))));
    end if;
    perform payload::json;
    if bare ~* $$\\ud[89a-f]$$ and regexp_replace(
        bare, $$\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}$$, '', 'gi'
    ) ~* $$\\ud[89a-f]$$ then
        perform onefold._refuse(
            'payload', 'holds text that is not valid Unicode, such as a lone surrogate');
    end if;
    if length(payload) > 512 and length(payload) - length(translate(payload, '[{', '')) > 256 then
        brackets := regexp_replace(replace(bare, $$\"$$, ''), '"[^"]*"', '', 'g');
        brackets := translate(regexp_replace(brackets, $$[^][{}]$$, '', 'g'), '{}', '[]');
        for level in 1..256 loop
            brackets := replace(brackets, '[]', '');
        end loop;
        if brackets <> '' then
            perform onefold._refuse('payload', 'must not nest deeper than 256 levels');
        end if;
    end if;
    if payload ~ '[0-9]{200}|[0-9][eE][+]?[0-9]{3}' then
        perform onefold._sorted_payload(payload);
    end if;
end
$function$;

-- --- digests and ids ---------------------------------------------------------------------------------

create function onefold._key_digest(variadic parts text[]) returns bytea
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
    from onefold._key_digest(variadic parts) as digest
$function$;

create function onefold._request_fingerprint(variadic parts text[]) returns text
language sql
immutable
as $function$
    select left(encode(onefold._key_digest(variadic parts), 'hex'), 32)
$function$;

-- Version 7: milliseconds, the hash that decides the shard, the fraction of the millisecond in the place of
-- a counter, and noise. Without a hash it is one for this millisecond and connection, so that what one
-- connection stores is in order.
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

-- --- storing -----------------------------------------------------------------------------------------

-- Everything that is asked for, checked, and made ready to be stored.
create function onefold._prepare(
    kind text, payload text, queue text, priority integer, max_attempts integer, run_at timestamptz,
    unique_key text, group_key text, tags text[], metadata jsonb, delay interval, unique_while text,
    unique_for interval, across_kinds boolean, idempotency_key text, idempotency_for interval,
    tenant text, expires_at timestamptz, shards integer
) returns onefold.prepared
language plpgsql
as $function$
declare
    asked onefold.prepared;
    sorted text;
begin
    perform onefold._check_name(kind, 'kind');
    -- A queue of the server's is named with its tenant.
    perform onefold._check_name(
        regexp_replace(queue, $$^\{[a-z0-9][a-z0-9._-]{0,63}\}$$, ''), 'queue');
    perform onefold._check_payload(payload);
    perform onefold._check_key(tenant, 'tenant', 0);
    perform onefold._check_key(unique_key, 'unique_key') where unique_key is not null;
    perform onefold._check_key(idempotency_key, 'idempotency_key') where idempotency_key is not null;
    perform onefold._check_key(group_key, 'group_key') where group_key is not null;
    asked.tenant := tenant;
    asked.queue := queue;
    asked.kind := kind;
    asked.payload := payload;
    asked.group_key := group_key;
    asked.priority := onefold._check_number(priority, 'priority', -32768, 32767);
    asked.max_attempts := onefold._check_number(max_attempts, 'max_attempts', 1, 100);
    asked.run_at := onefold._to_micros(run_at, 'run_at');
    asked.expires_at := onefold._to_micros(expires_at, 'expires_at');
    asked.delay := coalesce(onefold._span(delay, 'delay'), 0);
    if delay is not null and run_at is not null then
        perform onefold._refuse('delay', 'cannot be given together with run_at');
    end if;
    asked.options := onefold._options(tags, metadata, idempotency_key);
    if unique_key is not null or idempotency_key is not null then
        sorted := onefold._sorted_payload(payload);
    end if;

    asked.unique_states := 0;
    if unique_key is not null then
        asked.unique_key := unique_key;
        asked.unique_kind := case when across_kinds then '' else kind end;
        asked.unique_for := onefold._span(unique_for, 'unique_for', 1);
        -- A window alone holds by time and by nothing else.
        asked.unique_states := case
            when unique_while is null then case when unique_for is null then 3 else 0 end
            when unique_while = 'queued' then 1
            when unique_while = 'active' then 3
            when unique_while = 'exists' then 31
        end;
        asked.fingerprint := onefold._request_fingerprint(kind, sorted);
        if asked.unique_states is null then
            perform onefold._refuse(
                'unique_while', format('must be queued, active or exists, got %L', unique_while));
        end if;
    elsif unique_while is not null then
        perform onefold._refuse('unique_while', 'needs a unique_key');
    elsif unique_for is not null then
        perform onefold._refuse('unique_for', 'needs a unique_key');
    elsif across_kinds then
        perform onefold._refuse('across_kinds', 'needs a unique_key');
    end if;
    if across_kinds is null then
        perform onefold._refuse('across_kinds', 'must be true or false, got null');
    end if;

    if idempotency_key is not null then
        if idempotency_for is null then
            perform onefold._refuse('idempotency_for', 'must not be null');
        end if;
        asked.publish_key := idempotency_key;
        asked.publish_fingerprint := onefold._request_fingerprint(kind, queue, sorted);
        asked.publish_keep := onefold._span(idempotency_for, 'idempotency_for', 1);
        asked.publish_shard := onefold._hash12(tenant, 'publish', queue, idempotency_key) % shards;
    end if;

    asked.id := onefold._new_id(case
        when unique_key is not null then onefold._hash12(tenant, asked.unique_kind, unique_key)
        when idempotency_key is not null then onefold._hash12(tenant, 'publish', queue, idempotency_key)
    end);
    asked.shard := onefold._shard_of(asked.id, shards);
    return asked;
end
$function$;

-- The settings that few jobs have, as one JSON text; null where there are none.
create function onefold._options(tags text[], metadata jsonb, publish_key text) returns text
language plpgsql
as $function$
declare
    given text[] := coalesce(tags, array[]::text[]);
begin
    if cardinality(given) > 50 then
        perform onefold._refuse('tags', format('must be at most 50, got %s', cardinality(given)));
    elsif jsonb_typeof(metadata) <> 'object' then
        perform onefold._refuse(
            'metadata', format('must be a JSON object, got %s', left(metadata::text, 100)));
    elsif octet_length(convert_to(metadata::text, 'UTF8')) > 65536 then
        perform onefold._refuse('metadata', format(
            'must have at most 65536 bytes, got %s', octet_length(convert_to(metadata::text, 'UTF8'))));
    end if;
    perform onefold._check_key(tag, 'tags') from unnest(given) as tag;
    if cardinality(given) = 0 and metadata is null and publish_key is null then
        return null;
    end if;
    return (
        case when cardinality(given) > 0
            then jsonb_build_object('tags', array(select unnest(given))) else '{}' end
        || case when metadata is not null then jsonb_build_object('metadata', metadata) else '{}' end
        -- To be shown; what decides is its claim.
        || case when publish_key is not null
            then jsonb_build_object('published', publish_key) else '{}' end
    )::text;
end
$function$;

-- Store a job, unless its key is held; wakes workers at the commit.
create function onefold._insert_prepared(asked onefold.prepared, now bigint) returns boolean
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
        now + asked.unique_for, now, asked.expires_at, asked.options, asked.group_key
    )
    on conflict do nothing;
    if not found then
        return false;
    end if;
    perform pg_notify(left('onefold.job', 63), asked.queue);
    return true;
end
$function$;

create function onefold._never_settled(key text) returns void
language plpgsql
as $function$
begin
    raise exception using
        errcode = 'lock_not_available',
        message = format('the key %L changed hands 8 times while we looked', key),
        hint = 'Roll the transaction back and run it again.';
end
$function$;

-- Store the job, or find the one that holds its key. The constraint decides; a look only follows an insert
-- that was refused. A holder whose time is over gives its key up, and is asked again.
create function onefold._settle(
    asked onefold.prepared, now bigint,
    out id uuid, out state smallint, out fingerprint text, out is_new boolean
)
language plpgsql
as $function$
declare
    lapsed text;
    waiting text;
begin
    for turn in 1..8 loop
        is_new := onefold._insert_prepared(asked, now);
        if is_new then
            id := asked.id;
            state := 0;
            return;
        end if;
        select
            j.id, j.state, j.fingerprint,
            case
                when j.state = 0 and j.expires_at <= now then 'expired'
                when j.unique_until <= now and (j.unique_states >> j.state) & 1 = 0 then 'window over'
                else ''
            end
        into _settle.id, _settle.state, _settle.fingerprint, lapsed
        from onefold.job as j
        where
            j.shard = asked.shard
            and j.tenant = asked.tenant
            and j.unique_kind = asked.unique_kind
            and j.unique_key = asked.unique_key
            and j.unique_key is not null
            and not j.yielded
            and (j.unique_until is not null or (j.unique_states >> j.state) & 1 = 1);
        if lapsed = '' then
            return;
        elsif lapsed = 'window over' then
            -- A successor that waited is older than the newcomer, and is dropped with the key.
            update onefold.job as j
            set yielded = true, next = null
            where
                j.shard = asked.shard
                and j.id = _settle.id
                and not j.yielded
                and j.unique_until <= now
                and (j.unique_states >> j.state) & 1 = 0;
        elsif lapsed = 'expired' then
            update onefold.job as j
            set
                state = 3,
                vanished = 0,
                not_before = null,
                reason = 'expired',
                ended_at = now,
                keep_until = now
                    + coalesce((j.options::jsonb #>> '{keep,dead}')::bigint, 2592000000000),
                -- A successor gets the key.
                yielded = j.yielded or j.next is not null
            where j.shard = asked.shard and j.id = _settle.id and j.state = 0 and j.expires_at <= now
            returning j.next into waiting;
            if waiting is not null then
                perform onefold._insert_prepared(
                    jsonb_populate_record(null::onefold.prepared, waiting::jsonb), now);
                update onefold.job as j set next = null where j.shard = asked.shard and j.id = _settle.id;
            end if;
        end if;
    end loop;
    perform onefold._never_settled(asked.unique_key);
end
$function$;

-- Record a publish key, or find the job that it stands for. One that is over is taken.
create function onefold._claim_publish_key(
    asked onefold.prepared, now bigint, shards integer,
    out job_id uuid, out owner uuid, out state smallint, out mismatch boolean, out is_new boolean
)
language plpgsql
as $function$
declare
    known onefold.claim;
begin
    for turn in 1..8 loop
        insert into onefold.claim (
            shard, tenant, surface, scope, key, id, owner, state, takeover, fence, created_at,
            settled_at, expires_at, keep, fingerprint, result
        )
        values (
            asked.publish_shard, asked.tenant, 'publish', asked.queue, asked.publish_key, asked.id,
            asked.id, 1, 0, (extract(epoch from clock_timestamp()) * 1000000)::bigint, now, now,
            now + asked.publish_keep, asked.publish_keep, asked.publish_fingerprint, asked.id::text
        )
        on conflict do nothing;
        is_new := found;
        if is_new then
            return;
        end if;
        select * into known
        from onefold.claim as c
        where
            c.shard = asked.publish_shard
            and c.tenant = asked.tenant
            and c.surface = 'publish'
            and c.scope = asked.queue
            and c.key = asked.publish_key;
        continue when not found;
        job_id := known.result::uuid;
        owner := known.owner;
        mismatch := known.fingerprint is distinct from asked.publish_fingerprint;
        select j.state into _claim_publish_key.state
        from onefold.job as j
        where j.shard = onefold._shard_of(job_id, shards) and j.id = job_id;
        -- Released by an operator, or expired; but never while its job has not ended.
        if
            job_id is not null
            and known.state <> 2
            and not (coalesce(state, 2) >= 2 and coalesce(known.expires_at <= now, false))
        then
            return;
        end if;
        update onefold.claim as c
        set
            id = asked.id,
            owner = asked.id,
            state = 1,
            takeover = 0,
            fence = greatest(
                c.fence + 1, (extract(epoch from statement_timestamp()) * 1000000)::bigint),
            created_at = now,
            lease_until = null,
            settled_at = now,
            expires_at = now + asked.publish_keep,
            keep = asked.publish_keep,
            fingerprint = asked.publish_fingerprint,
            result = asked.id::text
        where
            c.shard = asked.publish_shard
            and c.tenant = asked.tenant
            and c.surface = 'publish'
            and c.scope = asked.queue
            and c.key = asked.publish_key
            and c.fence = known.fence
            and c.state = known.state
            and c.owner = known.owner;
        is_new := found;
        if is_new then
            return;
        end if;
    end loop;
    perform onefold._never_settled(asked.publish_key);
end
$function$;

create function onefold._refuse_reuse(key text, job_id uuid, item integer) returns void
language plpgsql
as $function$
begin
    raise exception using
        errcode = 'OF422',
        message = coalesce('item ' || item || ': ', '') || format(
            'the key %L was used before with a different request. Use a new key for a new request.', key),
        detail = json_build_object('key', key, 'holder_id', job_id, 'item', item)::text;
end
$function$;

create function onefold._refuse_duplicate(key text, job_id uuid, state text, item integer) returns void
language plpgsql
as $function$
begin
    raise exception using
        errcode = 'unique_violation',
        message = coalesce('item ' || item || ': ', '')
            || format('the key %L is held by job %s (%s).', key, job_id, state),
        detail = json_build_object(
            'key', key, 'holder_id', job_id, 'state', state, 'item', item)::text,
        hint = $$Use on_duplicate => 'keep' to be answered with that job instead.$$,
        constraint = 'job_unique';
end
$function$;

create function onefold._check_policy(on_duplicate text, on_mismatch text) returns void
language plpgsql
as $function$
begin
    if on_duplicate in ('replace', 'rerun') then
        perform onefold._refuse('on_duplicate', format(
            'must be keep or raise here, got %L: only the library and the server change a holder',
            on_duplicate));
    elsif on_duplicate is null or on_duplicate not in ('keep', 'raise') then
        perform onefold._refuse('on_duplicate', format('must be keep or raise, got %L', on_duplicate));
    elsif on_mismatch is null or on_mismatch not in ('flag', 'raise') then
        perform onefold._refuse('on_mismatch', format('must be flag or raise, got %L', on_mismatch));
    end if;
end
$function$;

create function onefold._time(clock timestamptz) returns bigint
language sql
as $function$
    select coalesce(
        onefold._to_micros(clock, 'clock'), (extract(epoch from statement_timestamp()) * 1000000)::bigint)
$function$;

-- How many shards there are is data; without it no key could be looked for in the right place.
create function onefold._shards() returns integer
language sql
stable
as $function$
    select (m.value::jsonb ->> 'shards')::integer from onefold.meta as m where m.name = 'identity'
$function$;

-- Store the jobs that are new, and answer for each item, in order. Publish keys first, then unique keys, both
-- in the one order in which everybody asks for them: so that two batches never wait for each other.
create function onefold._enqueue(
    asked onefold.prepared[], request_ids text[], on_duplicate text, on_mismatch text, now bigint,
    shards integer, is_batch boolean
)
returns table (id uuid, duplicate boolean, inserted boolean, state text, mismatch boolean)
language plpgsql
as $function$
declare
    words text[] := array['queued', 'running', 'completed', 'dead', 'cancelled'];
    ids uuid[] := array(select a.id from unnest(asked) with ordinality as a order by a.ordinality);
    leaders integer[] := array_fill(null::integer, array[cardinality(asked)]);
    answers uuid[] := array_fill(null::uuid, array[cardinality(asked)]);
    states text[] := array_fill(null::text, array[cardinality(asked)]);
    mismatches boolean[] := array_fill(false, array[cardinality(asked)]);
    published record;
    stand record;
    one onefold.prepared;
    place integer;
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

    for place in
        select a.ordinality
        from unnest(asked) with ordinality as a
        where answers[a.ordinality] is null
        order by
            a.shard, a.tenant collate "C", a.unique_kind collate "C" nulls first,
            a.unique_key collate "C" nulls first, a.ordinality
    loop
        label := case when is_batch then place - 1 end;
        one := asked[place];
        stand := onefold._settle(one, now);
        answers[place] := stand.id;
        states[place] := words[stand.state + 1];
        continue when stand.is_new;
        mismatches[place] := stand.fingerprint is distinct from one.fingerprint;
        if on_duplicate = 'raise' then
            perform onefold._refuse_duplicate(one.unique_key, stand.id, states[place], label);
        elsif mismatches[place] and on_mismatch = 'raise' then
            perform onefold._refuse_reuse(one.unique_key, stand.id, label);
        elsif one.publish_key is not null then
            -- The publish key stands for the holder.
            update onefold.claim as c
            set result = stand.id::text
            where
                c.shard = one.publish_shard
                and c.tenant = one.tenant
                and c.surface = 'publish'
                and c.scope = one.queue
                and c.key = one.publish_key
                and c.owner = one.id;
        end if;
    end loop;

    for place in 1..cardinality(asked) loop
        -- The same publish key came earlier in this call.
        id := answers[coalesce(leaders[place], place)];
        state := states[coalesce(leaders[place], place)];
        duplicate := id <> ids[place];
        inserted := not duplicate;
        mismatch := mismatches[place];
        -- A job that is gone, and that only a publish key remembers, has nobody to tidy its notes.
        if duplicate and state is not null then
            insert into onefold.duplicate (shard, job_id, at, request_id)
            values (onefold._shard_of(id, shards), id, now, request_ids[place]);
        end if;
        return next;
    end loop;
end
$function$;

-- --- the functions -----------------------------------------------------------------------------------

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
    clock timestamptz default null              -- for tests: what the time is taken to be
)
returns table (id uuid, duplicate boolean, inserted boolean, state text, mismatch boolean)
language plpgsql
set search_path = pg_catalog, pg_temp
as $function$
declare
    shards integer := onefold._shards();
begin
    perform onefold._check_policy(on_duplicate, on_mismatch);
    perform onefold._check_key(request_id, 'request_id', 0) where request_id is not null;
    return query select * from onefold._enqueue(
        array[onefold._prepare(
            kind, payload, queue, priority, max_attempts, run_at, unique_key, group_key, tags, metadata,
            delay, unique_while, unique_for, across_kinds, idempotency_key, idempotency_for, tenant,
            expires_at, shards
        )],
        array[request_id], on_duplicate, on_mismatch, onefold._time(clock), shards, false
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
    on_mismatch text default 'flag',
    request_id text default null,
    clock timestamptz default null
)
returns table (id uuid, duplicate boolean, inserted boolean, state text, mismatch boolean)
language sql
as $function$
    select * from onefold.onefold_enqueue(
        kind, payload::text, queue, priority, max_attempts, run_at, unique_key, group_key, tags,
        metadata, delay, unique_while, unique_for, across_kinds, idempotency_key, idempotency_for,
        tenant, expires_at, on_duplicate, on_mismatch, request_id, clock
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
    on_mismatch text default 'flag',
    request_id text default null,
    clock timestamptz default null
)
returns table (id uuid, duplicate boolean, inserted boolean, state text, mismatch boolean)
language sql
as $function$
    select * from onefold.onefold_enqueue(
        kind, payload::text, queue, priority, max_attempts, run_at, unique_key, group_key, tags,
        metadata, delay, unique_while, unique_for, across_kinds, idempotency_key, idempotency_for,
        tenant, expires_at, on_duplicate, on_mismatch, request_id, clock
    )
$function$;

-- Many at once, all or nothing: a JSON array of objects whose members are named like the arguments of
-- `onefold_enqueue`. Items are counted from 0.
create function onefold.onefold_enqueue_many(
    jobs jsonb,
    tenant text default '',
    on_duplicate text default 'keep',
    on_mismatch text default 'flag',
    clock timestamptz default null              -- for tests: what the time is taken to be
)
returns table (
    item integer, id uuid, duplicate boolean, inserted boolean, state text, mismatch boolean
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
    perform onefold._check_policy(on_duplicate, on_mismatch);
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
        select (e.ordinality - 1)::integer, e.id, e.duplicate, e.inserted, e.state, e.mismatch
        from onefold._enqueue(
            asked, request_ids, on_duplicate, on_mismatch, onefold._time(clock), shards, true
        ) with ordinality as e
        order by e.ordinality;
end
$function$;
