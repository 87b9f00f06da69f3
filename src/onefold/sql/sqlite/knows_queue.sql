-- One row if anything is stored about a queue on this shard: settings, schedules, or jobs in any state.
select 1
where
    exists (select 1 from onefold_queue as q where q.shard = :shard and q.name = :queue)
    or exists (select 1 from onefold_job as j where j.shard = :shard and j.queue = :queue)
    or exists (select 1 from onefold_schedule as s where s.shard = :shard and s.queue = :queue)
    or exists (
        select 1
        from onefold_served_queue as s
        where
            s.shard = :shard
            and case when s.tenant = '' then s.name else '{' || s.tenant || '}' || s.name end = :queue
    )
