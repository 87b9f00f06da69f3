-- Hold a queue: no job is taken from it until the given time. A longer hold stays, unless this one is
-- forced. If the receiver requested one hold and failures of the endpoint (circuit) caused the other,
-- the later end and the receiver's reason stay. Returns the end of the hold and the requested end, for
-- the rows on other shards.
insert into onefold.queue (
    shard, name, declared, controlled, held_until, held_why, updated_at
)
values (
    :shard::smallint, :queue::text, true, true,
    coalesce(
        :until::bigint,
        coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
            + :after::bigint
    ),
    :why::text,
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
)
on conflict (shard, name) do update
set controlled = true,
    held_until = case
        when :force::boolean or queue.held_until is null or queue.held_until < excluded.held_until
            then excluded.held_until
        else queue.held_until
    end,
    held_why = case
        when
            :force::boolean
            or queue.held_until is null
            or (
                excluded.held_why <> 'circuit'
                and (queue.held_why = 'circuit' or queue.held_until < excluded.held_until)
            )
            then excluded.held_why
        else queue.held_why
    end,
    updated_at = excluded.updated_at
returning
    queue.held_until,
    -- The time that was just written: Citus does not allow a clock here.
    coalesce(:until::bigint, queue.updated_at + :after::bigint)
