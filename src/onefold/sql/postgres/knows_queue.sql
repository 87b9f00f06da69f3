-- One row if anything is stored about a queue on this shard: settings, schedules, or jobs in any state.
select 1
where
    exists (select 1 from onefold.queue as q where q.shard = :shard::smallint and q.name = :queue::text)
    or exists (select 1 from onefold.job as j where j.shard = :shard::smallint and j.queue = :queue::text)
    or exists (
        select 1 from onefold.schedule as s where s.shard = :shard::smallint and s.queue = :queue::text
    )
    or exists (
        select 1
        from onefold.served_queue as s
        where
            s.shard = :shard::smallint
            and case when s.tenant = '' then s.name else '{' || s.tenant || '}' || s.name end = :queue::text
    )
