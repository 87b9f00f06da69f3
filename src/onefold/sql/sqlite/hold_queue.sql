-- Hold a queue: no job is taken from it until the given time. A longer hold stays, unless this one is
-- forced. If the receiver requested one hold and failures of the endpoint (circuit) caused the other,
-- the later end and the receiver's reason stay. Returns the end of the hold and the requested end, for
-- the rows on other shards.
insert into onefold_queue (
    shard, name, declared, controlled, held_until, held_why, updated_at
)
values (:shard, :queue, true, true, coalesce(:until, :now + :after), :why, :now)
on conflict (shard, name) do update
set controlled = true,
    held_until = case
        when :force or onefold_queue.held_until is null or onefold_queue.held_until < excluded.held_until
            then excluded.held_until
        else onefold_queue.held_until
    end,
    held_why = case
        when
            :force
            or onefold_queue.held_until is null
            or (
                excluded.held_why <> 'circuit'
                and (onefold_queue.held_why = 'circuit' or onefold_queue.held_until < excluded.held_until)
            )
            then excluded.held_why
        else onefold_queue.held_why
    end,
    updated_at = excluded.updated_at
returning held_until, coalesce(:until, :now + :after)
