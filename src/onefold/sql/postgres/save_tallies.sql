-- Store tallies of duplicates.
insert into onefold.duplicate_tally (shard, job_id, count, first_at, last_at, recent)
select r.shard, r.job_id::uuid, r.count, r.first_at, r.last_at, r.recent
from unnest(
    :shard::smallint[], :job_id::text[], :count::bigint[], :first_at::bigint[], :last_at::bigint[],
    :recent::text[]
) with ordinality as r (shard, job_id, count, first_at, last_at, recent, place)
order by r.place
on conflict (shard, job_id) do update
set count = excluded.count,
    first_at = excluded.first_at,
    last_at = excluded.last_at,
    recent = excluded.recent
