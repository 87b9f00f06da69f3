-- Forget deliveries of jobs that have had very many: all up to the fence that is given with a job.
delete from onefold_attempt
where rowid in (
    select t.rowid
    from (
        select
            json_extract(value, '$[0]') as shard,
            json_extract(value, '$[1]') as id,
            json_extract(value, '$[2]') as fence
        from json_each(:rows)
    ) as r
    cross join onefold_attempt as t
        on t.shard = r.shard and t.job_id = r.id and t.fence <= r.fence
)
