-- The job that a request meets: the job with its id, or the holder of its key; and whether that job has
-- lost its key: 1 its window is over, 2 it has expired.
select
    r.id, j.id, j.state, j.fingerprint, :now,
    case
        when j.state = 0 and j.expires_at <= :now then 2
        when j.unique_until <= :now and (j.unique_states >> j.state) & 1 = 0 then 1
        else 0
    end,
    j.attempt, j.run_at, j.awaiting = j.fence
from (
    select
        json_extract(value, '$[0]') as id,
        json_extract(value, '$[1]') as shard,
        json_extract(value, '$[2]') as tenant,
        json_extract(value, '$[3]') as unique_kind,
        json_extract(value, '$[4]') as unique_key
    from json_each(:rows)
) as r
join onefold_job as j on j.rowid = coalesce(
    (select m.rowid from onefold_job as m where :resent and m.shard = r.shard and m.id = r.id),
    (
        select m.rowid
        from onefold_job as m
        where
            m.shard = r.shard
            and m.tenant = r.tenant
            and m.unique_kind = r.unique_kind
            and m.unique_key = r.unique_key
            and m.unique_key is not null
            and not m.yielded
            and (m.unique_until is not null or (m.unique_states >> m.state) & 1 = 1)
    )
)
