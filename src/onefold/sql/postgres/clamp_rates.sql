-- After a change of the rate: a bucket that was emptied under a slower rate is at most empty under the
-- new one.
update onefold.rate as r
set full_at = clamp.full_at
from
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
        as clock (now)
cross join lateral (
    values
        (true, clock.now + coalesce(:period::bigint, 0)),
        (false, clock.now + coalesce(:group_period::bigint, 0))
) as clamp (of_queue, full_at)
where
    r.shard = :shard::smallint
    and r.queue = :queue::text
    and clamp.of_queue = (r.group_key = '')
    and r.full_at > clamp.full_at
