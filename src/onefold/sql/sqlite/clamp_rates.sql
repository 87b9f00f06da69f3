-- After a change of the rate: a bucket that was emptied under a slower rate is at most empty under the
-- new one.
update onefold_rate
set
    full_at = min(
        full_at,
        :now + case when group_key = '' then coalesce(:period, 0) else coalesce(:group_period, 0) end
    )
where shard = :shard and queue = :queue
