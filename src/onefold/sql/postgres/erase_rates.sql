-- Delete the rates of a tenant's queues, as of erase_queues, and those of some groups in other queues.
delete from onefold.rate as r
where
    r.shard = :shard::smallint
    and (
        starts_with(r.queue, :prefix::text)
        or r.queue = any(:queues::text[])
        or (r.queue, r.group_key) in (
            select g.queue, g.group_key
            from unnest(:queue::text[], :group_key::text[]) as g (queue, group_key)
        )
    )
returning r.group_key
