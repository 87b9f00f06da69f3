-- Delete old deliveries of jobs that have very many: all up to the given fence of each job.
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
